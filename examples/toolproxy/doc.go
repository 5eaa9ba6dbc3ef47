// Command toolproxy is a proxy between AI agents and their tools. The proxy makes a call with an
// idempotency key at most once, no matter how many times the agent repeats the request or which
// member answers. If a call's outcome is unknown, the proxy reports the call as in doubt.
//
//	go run ./toolproxy -db tools.db -listen 127.0.0.1:8700 mail=http://127.0.0.1:9000/send
//	curl -H 'Idempotency-Key: step-7' -d '{"to": "ann"}' http://127.0.0.1:8700/tools/mail
//
// The leader makes the calls, and other members answer with 503. A call without an answer may still
// have taken effect. The leader does not repeat such a call until an operator decides with "tenure
// effect resolve". Until then, requests with the same key get a 409. The tool and the key identify
// a call, so a repeated request gets the first answer, even if its body is different.
package main
