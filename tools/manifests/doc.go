// Package manifests validates files that are not Go code. It checks the manifests of
// deploy/kubernetes against the types of the Kubernetes API, and the API of "tenure serve" against
// its OpenAPI file. It is a separate module, so that the library does not depend on the validators.
package manifests
