// Package kubernetes has no code. It holds the manifests of members, of a program with a sidecar,
// and of the objects around them. docs/kubernetes.md explains them. Package manifests, in tools,
// checks them against the types of the Kubernetes API. The test here plays the rolling deploy of
// that page with processes.
package kubernetes
