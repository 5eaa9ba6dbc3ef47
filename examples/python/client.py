#!/usr/bin/env python3
"""Sends requests to the owner of their key, in one hop and without a store.

    TENURE_ALLOW=10.0.0.0/8 ./client.py http://10.0.0.7:8080/owners,http://10.0.0.8:8080/owners < orders

Each line of orders has a key and a body, which goes to /orders/KEY at the owner by POST. The map of
owners comes from any of the members, after a 503 from another one; the last one is used while none
answers. With TENURE_BEARER
requests carry a credential. It goes to the networks of TENURE_ALLOW only; without them, not to
loopback, link-local, multicast and other reserved addresses.
"""
import bisect, http.client, ipaddress, itertools, json, os, socket, sys, threading, time, urllib.parse

ALLOW = [ipaddress.ip_network(n) for n in os.environ.get("TENURE_ALLOW", "").split(",") if n]
HEADERS = {"Authorization": "Bearer " + os.environ["TENURE_BEARER"]} if "TENURE_BEARER" in os.environ else {}
MASK, WAIT, LARGEST = 2**64 - 1, 10, 64 << 20
OWNER = "urn:tenure:route:owner"
UNDONE = "urn:tenure:route:unowned", "urn:tenure:route:unreachable"


def hash_of(key, kind):
    h = 14695981039346656037  # FNV-1a, finished as SplitMix64 does
    for byte in key.encode():
        h = (h ^ byte) * 1099511628211 & MASK
    if kind != "fnv1a-mixed":
        return h
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & MASK
    h = (h ^ h >> 27) * 0x94D049BB133111EB & MASK
    return h ^ h >> 31


def connect(address):
    """Connects to an address if it is allowed by what its name resolves to."""
    url = urllib.parse.urlsplit(address)
    if url.scheme != "http" or not url.hostname or url.netloc.count("@") or url.path or url.query:
        raise PermissionError(f"{address!r} is not http://host:port")
    ip = ipaddress.ip_address(socket.getaddrinfo(url.hostname, url.port or 80, type=socket.SOCK_STREAM)[0][4][0])
    ip = getattr(ip, "ipv4_mapped", None) or ip
    reserved = ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified or ip.is_reserved
    if not any(ip in network for network in ALLOW) if ALLOW else reserved:
        raise PermissionError(f"{address!r} is {ip}, which is not allowed: see TENURE_ALLOW")
    connection = http.client.HTTPConnection(str(ip), url.port or 80, timeout=30)
    connection.connect()
    return connection


class Owners(threading.Thread):
    """Keeps the map of owners."""

    def __init__(self, members):
        super().__init__(daemon=True)
        self.members, self.news = members, threading.Condition()
        self.version, self.kind, self.shards, self.nodes, self.starts = "", "", {}, {}, []
        self.asking, self.hurried = None, 0.0

    def run(self):
        for member in itertools.cycle(self.members):
            try:
                while True:
                    self.ask(member)
            except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as problem:
                print("map:", problem, file=sys.stderr)  # the next member; the map stays
                self.version = ""
                time.sleep(0.2)

    def ask(self, member):
        url = urllib.parse.urlsplit(member)
        connection = self.asking = http.client.HTTPConnection(url.hostname, url.port, timeout=2 * WAIT)
        connection.request("GET", f"{url.path}?after={self.version}&wait={WAIT}s")
        answer = connection.getresponse()  # redirects are not followed
        body = answer.read(LARGEST + 1)
        connection.close()
        if answer.status == 204:
            return
        if answer.status != 200 or len(body) > LARGEST:
            raise OSError(f"{member} answers {answer.status} with {len(body)} bytes")
        new = json.loads(body)
        shards = {} if new["full"] else dict(self.shards)
        shards.update((s["shard"], s) for s in new["shards"])
        starts = sorted((int(s["range"][0], 16), name) for name, s in shards.items() if "range" in s)
        if not starts or starts[0][0] != 0:
            raise ValueError(f"the map of {member} has no shard for some keys")
        with self.news:
            self.shards, self.starts, self.kind = shards, starts, new["keyspace"]["hash"]
            self.nodes, self.version = new.get("members", self.nodes), new["version"]
            self.news.notify_all()

    def hurry(self):
        """Asks another member for the map, once a second at most."""
        if time.monotonic() >= self.hurried + 1:
            self.hurried = time.monotonic()
            try:
                self.asking.sock.shutdown(socket.SHUT_RDWR)
            except (AttributeError, OSError):
                pass  # no request for the map is on its way

    def address(self, key):
        with self.news:
            if not self.starts:
                return None
            name = self.starts[bisect.bisect(self.starts, (hash_of(key, self.kind), "\x7f")) - 1][1]
            return self.nodes.get(self.shards[name].get("node"), {}).get("http")

    def send(self, key, path, body):
        """Posts to the owner of a key, again only where nothing was done."""
        named = None  # by an answer
        for attempt in range(100):
            address, named = named or self.address(key), None
            try:
                connection = connect(address) if address else None
            except PermissionError:
                raise
            except OSError:
                connection = None  # nothing was sent
            if connection:
                connection.request("POST", path, body, HEADERS)
                answer = connection.getresponse()
                text = answer.read().decode()
                connection.close()
                problem = {}
                if answer.getheader("Content-Type") == "application/problem+json":
                    problem = json.loads(text)
                if answer.status == 421 and problem.get("type") == OWNER and problem.get("address"):
                    named = problem["address"]
                elif answer.status != 503 or problem.get("type") not in UNDONE:
                    return answer.status, text
            if address and not named:
                self.hurry()  # the map may be out of date
            if attempt > 1 or not named:
                with self.news:
                    self.news.wait(min(0.02 * 2**attempt, 1))
        raise TimeoutError(f"{key}: nobody serves it")


if __name__ == "__main__":
    owners = Owners(sys.argv[1].split(","))
    owners.start()
    for line in sys.stdin:
        key, body = line.split()
        print(key, *owners.send(key, "/orders/" + urllib.parse.quote(key, safe=""), body), flush=True)
