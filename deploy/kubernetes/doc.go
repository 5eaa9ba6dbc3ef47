// Package kubernetes contains only tests. Its folder holds Kubernetes manifests for members, for a
// program with a sidecar, and for related objects. The page docs/kubernetes.md explains the
// manifests. Package tools/manifests checks them against the types of the Kubernetes API. The test
// in this folder simulates that page's rolling deploy with processes.
package kubernetes
