// Package manifests checks what is deployed and described beside the Go code: the
// manifests of deploy/kubernetes against the types of the Kubernetes API, and the API of
// tenure serve against its OpenAPI file. It is a module of its own, so that these
// validators are no dependency of the library.
package manifests
