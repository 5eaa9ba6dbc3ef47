// Package manifests checks files beside the Go code: the manifests of deploy/kubernetes against the
// types of the Kubernetes API, and the API of "tenure serve" against its OpenAPI file. It is a
// separate module, so that the library does not depend on these validators.
package manifests
