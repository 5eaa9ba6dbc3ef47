// Package kubernetes has no code. The folder holds the manifests of members, of a program with a
// sidecar, and of the objects around them. The page docs/kubernetes.md explains the manifests.
// Package manifests, in tools, checks them against the types of the Kubernetes API. The test in
// this folder plays the rolling deploy of that page with processes.
package kubernetes
