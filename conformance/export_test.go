package conformance

// NewProxy is Proxy with its inner proxy.
var NewProxy = newProxy
