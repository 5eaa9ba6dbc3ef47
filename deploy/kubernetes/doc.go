// Package kubernetes has no code: the manifests of members, of a program with a sidecar,
// and of what is around them. docs/kubernetes.md explains them. Package manifests, in
// tools, checks them against the types of the Kubernetes API; the test here plays the
// rolling deploy of that page with processes.
package kubernetes
