#!/usr/bin/env python3
"""Leads a shard through tenure serve, and appends to its log while it leads.

    TENURE_TOKEN_FILE=token ./leader.py 127.0.0.1:8650 jobs
"""
import http.client, json, os, sys, time

ADDRESS, SHARD = sys.argv[1:3]
HEADERS = {"Authorization": "Bearer " + open(os.environ["TENURE_TOKEN_FILE"]).read().strip()}


def post(path, **body):
    connection = http.client.HTTPConnection(ADDRESS, timeout=30)
    connection.request("POST", path, json.dumps(body), HEADERS)
    return connection.getresponse()


def contend():
    for line in post(f"/v1/shards/{SHARD}/lease"):  # a stream of states, until the lease is over
        if not line.startswith(b"data: "):
            continue
        lease = json.loads(line[6:])
        path, token = f"/v1/leases/{lease['lease']}/", lease.get("token")
        if lease["state"] == "held":  # the write is refused if the token is no longer current
            answer = post(path + "append", token=token, text=f"written under {token}")
        else:  # standing by, the client must show that it is alive, too
            answer = post(path + {"waiting": "beat"}.get(lease["state"], "release"))
        print(lease["state"], token, answer.status, answer.read().decode().strip(), flush=True)


while True:
    try:
        contend()
    except (OSError, http.client.HTTPException) as problem:  # the sidecar is gone: the lease is, too
        print("lost", problem, flush=True)
    time.sleep(0.2)
