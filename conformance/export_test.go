package conformance

// NewProxy is Proxy for a test that looks into it.
var NewProxy = newProxy
