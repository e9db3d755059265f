// React 18: React Router with lazy routes, Redux, styled-components, react-helmet, react-transition-group,
// i18next with words that are fetched, an error boundary.
import i18next from "i18next";
import HttpBackend from "i18next-http-backend";
import { Component, Suspense, lazy, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { Helmet, HelmetProvider } from "react-helmet-async";
import { initReactI18next, useTranslation } from "react-i18next";
import { Provider, useDispatch, useSelector } from "react-redux";
import { BrowserRouter, Link, Route, Routes } from "react-router-6";
import { CSSTransition, TransitionGroup } from "react-transition-group";
import styled from "styled-components";
import { loadBirds, store } from "./store.js";
import "./transitions.css";

const Bird = lazy(() => import("./Bird.jsx"));

const Row = styled.li`
  color: rgb(10, 90, 10);
  font-weight: ${({ $large }) => ($large ? 700 : 400)};
`;

function Birds() {
  const { status, birds } = useSelector((state) => state.birds);
  const dispatch = useDispatch();
  useEffect(() => { dispatch(loadBirds()); }, [dispatch]);
  return <>
    <Helmet><title>All birds</title><meta name="description" content={`${birds.length} birds`} /></Helmet>
    <h1>Birds: {status}</h1>
    <TransitionGroup component="ul">
      {birds.map((bird) => <CSSTransition key={bird.id} timeout={400} classNames="fade">
        <Row $large={bird.span > 100}><Link to={`/birds/${bird.id}`}>{bird.name}</Link></Row>
      </CSSTransition>)}
    </TransitionGroup>
  </>;
}

function Words() {
  const { t } = useTranslation();
  return <><h1>{t("heading")}</h1><p>{t("hello", { name: "Otto" })}</p></>;
}

function Form() {
  const [form, setForm] = useState({ name: "", large: false, place: "moor", note: "" });
  useEffect(() => {
    fetch("/api/birds/4").then((answer) => answer.json()).then(({ name, span }) => {
      setForm({ name, large: span > 100, place: "harbour", note: `It spans ${span} cm` });
    });
  }, []);
  return <form>
    <input value={form.name} onChange={() => {}} />
    <input type="checkbox" checked={form.large} onChange={() => {}} />
    <select value={form.place} onChange={() => {}}><option>moor</option><option>harbour</option></select>
    <textarea value={form.note} onChange={() => {}} />
  </form>;
}

function Failing() {
  throw new Error("this part is broken");
}

class Boundary extends Component {
  state = { error: null };
  static getDerivedStateFromError(error) { return { error }; }
  render() { return this.state.error ? <p role="alert">Sorry: {this.state.error.message}</p> : this.props.children; }
}

function Missing() {
  return <>
    <Helmet><title>Not here</title><meta name="prerender-status-code" content="404" /></Helmet>
    <h1>There is no such page</h1>
  </>;
}

i18next.use(HttpBackend).use(initReactI18next).init({
  lng: "de", fallbackLng: false, backend: { loadPath: "/api/words/{{lng}}" },
});
createRoot(document.getElementById("app")).render(
  <HelmetProvider><Provider store={store}><BrowserRouter basename="/react18">
    <nav>The menu</nav>
    <Suspense fallback={<p>Loading</p>}>
      <Routes>
        <Route path="/birds" element={<Birds />} />
        <Route path="/birds/:id" element={<Bird />} />
        <Route path="/words" element={<Words />} />
        <Route path="/form" element={<Form />} />
        <Route path="/broken" element={<Boundary><Failing /></Boundary>} />
        <Route path="*" element={<Missing />} />
      </Routes>
    </Suspense>
  </BrowserRouter></Provider></HelmetProvider>,
);
