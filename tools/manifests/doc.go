// Package manifests validates files that are not Go code. It checks the manifests in
// deploy/kubernetes against the types of the Kubernetes API, and the API of "tenure serve" against
// the OpenAPI file. The package is in a separate module, so the library does not depend on the
// validators.
package manifests
