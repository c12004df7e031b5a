{{/* What the operator may do in a namespace that it looks after; it reads no Secret but those of operator.passwordSecrets. */}}
{{- define "daybook.rules" -}}
- apiGroups: [daybook.dev]
  resources: [bookiepools, ledgers, topics]
  verbs: [get, list, watch, patch]
- apiGroups: [daybook.dev]
  resources: [bookiepools/status, ledgers/status, topics/status]
  verbs: [patch]
- apiGroups: [daybook.dev]
  resources: [bookiepools/finalizers] # to own objects with blockOwnerDeletion
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [pods/eviction] # bookies go as far as disruption budgets let them
  verbs: [create]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [events] # the same again is counted up; a recovery Job's say why it does not start
  verbs: [get, list, create, patch]
{{- with .Values.operator.passwordSecrets }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames:
    {{- toYaml . | nindent 4 }}
  verbs: [get]
{{- end }}
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs, cronjobs]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}

{{/* What it reads that belongs to no namespace: labels of nodes, and whether a namespace terminates. */}}
{{- define "daybook.clusterRules" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get]
{{- end }}
