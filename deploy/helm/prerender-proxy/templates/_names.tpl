{{- define "prerender.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "prerender.selector" -}}
app.kubernetes.io/name: prerender-proxy
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "prerender.labels" -}}
{{ include "prerender.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "prerender.storeSelector" -}}
app.kubernetes.io/name: prerender-store
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "prerender.image" -}}
{{- with .Values.image -}}
{{ required "image.repository is not set: name the image of the proxy in your registry, such as ghcr.io/OWNER/prerender-proxy (make image builds it)" .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The origin's port, as its URL or its scheme says. */}}
{{- define "prerender.originPort" -}}
{{- $url := urlParse .Values.origin -}}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end }}
