// The parameters of the serializer (serializer.py), and what the probe finds only in some browsers.
declare const options: {
  cacheBuster: string;
  flattenShadowDom: boolean;
  addCanonical: boolean;
  internalHost: string;
  hasPolicy: boolean;
  refusedStyles: number[];
  attached: [number, [string, string][], string[]][];
  drawings: boolean;
  remove: string[];
  add: [string, [string, string][], string][];
};
declare const sheets: (number | string)[] | null;
declare var moreHtml: string[];
