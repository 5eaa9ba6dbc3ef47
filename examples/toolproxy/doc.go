// Command toolproxy stands between AI agents and their tools. A call with an idempotency key is
// made at most once, however often the agent repeats it and whichever member answers. If its
// outcome is unknown, the call is reported as in doubt.
//
//	go run ./toolproxy -db tools.db -listen 127.0.0.1:8700 mail=http://127.0.0.1:9000/send
//	curl -H 'Idempotency-Key: step-7' -d '{"to": "ann"}' http://127.0.0.1:8700/tools/mail
//
// The leader makes the calls; other members answer 503. A call without an answer may have had its
// effect. Its key is answered 409, and the call is not made again until a person has decided with
// "tenure effect resolve". The key names the call: a repetition gets the first answer, whatever its
// body is.
package main
