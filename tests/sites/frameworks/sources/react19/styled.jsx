/** @jsxImportSource @emotion/react */
export const Styled = ({ css, children }) => <b css={css}>{children}</b>;
