/*
 * The lease protocol of Tenure, for the model checker SPIN. It is written from the rules in
 * core/driver/doc.go, internal/fsm/doc.go and docs/internals/rules.md, not from the code. docs/internals/proof.md says
 * what it shows. check.sh runs it: one CONFIGURATION at a time, with all rules, and then with one
 * rule taken out by a macro NO_<rule>, such as -DNO_M2.
 *
 * Two members and one shard. A step is atomic. Its comment begins with the rules that it stands
 * for. Calls are requests and replies, which may be lost, late, or applied twice.
 *
 * Configurations:
 *   LEASE     time, pauses, heartbeats, joins, evictions, claims: S1, S6
 *   PREEMPT   the same, and another program that takes the shard: C11
 *   GIVING    releases, hand-overs, restarts, calls and views that are late or repeated, without
 *             time: trust may end at any moment, and a session once its process has ended: S1, S6
 *   OUTAGE    heartbeats only, and a store that goes away: C5
 *   TAKEOVER  deaths, deaf members, lost messages, an outage: V1. With EVENTUALLY any number of lost
 *             messages and outages, until there are no more: from then on a lease is valid, but for
 *             finitely many ticks. Sessions and tokens that nothing names any more are used again.
 *   COMMITS   fenced commits, without time, so that anybody may be evicted at any moment: S3, L1, E1.
 *             With CALLERS both members begin as callers of one lease
 *   FORK      the same with a store that goes back to a copy: I2. With REPLICA the copy is a replica,
 *             and answers wait until it has what they tell
 *   LOCKS     with GIVING or COMMITS: the shard is a lock, whose record goes when it is free: R2
 *
 * BUG_<name> puts in a fault that was found in the code by hand: docs/internals/bugs-found.md has their stories.
 */

#if defined(LEASE) || defined(PREEMPT) || defined(OUTAGE) || defined(TAKEOVER)
#define TIMED
#endif
#if defined(OUTAGE) || defined(TAKEOVER)
#define URGENT /* time passes only when nobody can take a step */
#endif
#if defined(COMMITS) || defined(FORK)
#define LOGGED
#endif
#if defined(LEASE) || defined(PREEMPT)
#define LOSSY /* any request may be lost */
#endif
#if defined(GIVING) || defined(COMMITS)
#define LATECALLS
#endif
#if defined(GIVING) || defined(PREEMPT)
#define LATEVIEWS
#endif

/* Time. TTL and margin are in ticks. In any TTL ticks one clock falls behind the other by one
 * tick at most: that is the ratio which the margin has to cover. */
#define TTL 3
#ifdef NO_MARGIN
#define TRUST TTL
#else
#define TRUST 2
#endif
#define LIMIT 1 /* half of the TTL (C5) */

#ifndef TOKENS
#define TOKENS 3 /* grants end with this token */
#endif
#ifndef SESSIONS
#define SESSIONS 3
#endif
#ifndef LOSSES
#define LOSSES 2
#endif
#ifndef WRITES
#define WRITES 3
#endif

/* ROLES: A holds and B watches. The heartbeats of B are answered at once, and A evicts nobody. */
#ifdef ROLES
#define SLOW(m) (m == A)
#define WATCHES(m) (m == B)
#else
#define SLOW(m) true
#define WATCHES(m) true
#endif

#ifdef FORK
#define FORKED forked
#else
#define FORKED false
#endif

#define A 0
#define B 1

/* TELL: each event prints a line for the picture of a run, which picture.awk draws:
 *   @s m CH ...  member m sends a message on the channel CH
 *   @a m CH ...  the store takes it
 *   @r m CH ...  the member gets the answer
 *   @k m CH TO   the network keeps the message of CH: it arrives on the channel TO
 *   @x m CH ...  the message is lost
 *   @e m ...     something else happens at a member, at the store (0), or to the network (3)
 *   @t ...       time passes
 *   @v a b       the tokens of the leases that are valid at m1 and at m2
 */
#ifdef TELL
#define say(...) printf(__VA_ARGS__);
#else
#define say(...)
#endif

/* A call: none; the request is under way; a reply is; nothing is, and nobody knows but the caller. */
mtype = { NONE, ASKED, YES, NO, DENIED, WAIT };
mtype = { BEAT, JOIN, CLAIM, GIVE, FREE, TAKE };

typedef Process {
	bool up;          /* the process runs */
	byte sid;         /* its session, 0 for none */
	byte age;         /* own ticks since it sent its newest answered heartbeat */
	byte own;         /* the token of its lease, 0 for none */
	byte burnt;       /* the greatest token given away or revoked here (C1) */
	mtype beat;       /* the call of a heartbeat or join, */
	mtype beatop;
	byte beatsid;
	byte beatage;     /* own ticks since it was sent */
	bool did;         /* URGENT: sent in this tick */
	byte peer;        /* the session that it watches, 0 for none, */
	byte quiet;       /* own ticks since it saw the newest change of that one's record, */
	bool same;        /* and whether that is still the record's version */
	byte read;        /* own ticks since a read was answered (C6) */
	byte evict;       /* an eviction under way: the session, */
	bool evictsame;   /* and whether the version that it names is still the record's */
	mtype call;       /* the call about the shard, */
	mtype op;
	byte seen;        /* the token that it names */
	byte to;          /* the successor */
	byte got;         /* the token granted */
	mtype late;       /* a request about the shard that is under way, and nobody waits for */
	byte latesid;
	byte lateseen;
	byte lateto;
	byte latejoin;    /* such a request to join */
	bool view;        /* a view of the shard's record under way: */
	byte viewtok;
	bool viewmine;
#ifdef LOGGED
	mtype write;      /* a commit, */
	byte wsid;        /* its fence, */
	byte wtok;
	byte wn;          /* its number, */
	byte wid;         /* what tells it from others */
	bool again;       /* and whether it was sent before */
	byte latew;       /* a commit under way for which nobody waits: its id, the rest: */
	byte latewsid;
	byte latewtok;
	byte latewn;
#endif
}
Process M[2];

/* The store. A version is not a number here: each heartbeat makes every version seen an old one. */
bool alive[SESSIONS + 2]; /* the member records */
bool used[SESSIONS + 2];  /* a join of this session took effect */
bool gone[SESSIONS + 2];  /* somebody saw that the session has ended */
byte sids;                /* session ids used */
byte owner;               /* the shard's record: a session, 0 for none, */
byte token;               /* and a token */
byte from;                /* the token that the grant was made from (A3) */
byte rev;                 /* the revision that gave the newest token */
byte mode;                /* the store serves: 0 all, 1 nothing, 2 reads only; 3 it takes requests and answers nothing */

/* Seen by nobody in the model: what the properties are about. */
byte top;                 /* the greatest token ever granted */
byte ended[2];            /* the greatest token whose lease has ended at a member */
bool taken[2];            /* preempted, and no view since (C11) */

#ifdef LOGGED
byte log[5];                  /* ids of the entries, from 1 */
byte logtok[5];
byte head;
byte ids;                 /* ids used */
byte told[5];             /* what the caller was told: 0 nothing, 1 applied, 2 not applied */
byte cur;                 /* the newest grant of the history that the store has */
#endif
#ifdef FORK
bool saved, forked;
bool strange;               /* the incarnation is not the one recorded (I2) */
bool savealive[SESSIONS + 2];
#ifdef REPLICA
byte shown;                 /* the newest commit that a read showed */
#endif
byte saveowner, savetoken, savefrom, saverev, savehead, savecur;
#endif
bool deaf;                /* no answer reaches A any more */
#ifdef TAKEOVER
byte losses;
bool hadaway;
byte lack;                /* ticks for which the store served and no lease was valid */
bool calm;                /* EVENTUALLY: there are no more faults */
#endif
#ifdef EVENTUALLY
#ifdef INTACT
#define LOSES false       /* no lost messages */
#else
#define LOSES !calm
#endif
#define NOTE(x) skip
#define GRANTS true       /* tokens never end */
#define NAMED(s) (alive[s] || owner == s || M[A].sid == s || M[B].sid == s || M[A].beatsid == s || M[B].beatsid == s || \
	M[A].peer == s || M[B].peer == s || M[A].evict == s || M[B].evict == s || M[A].latejoin == s)
#define FRESH (!NAMED(1) -> 1 : (!NAMED(2) -> 2 : (!NAMED(3) -> 3 : (!NAMED(4) -> 4 : 0))))
#define FREEIDS (!NAMED(1) + !NAMED(2) + !NAMED(3) + !NAMED(4))
#define JOINS(m) (FREEIDS > 1 || (m == B && FREEIDS == 1)) /* B finds a session that nothing names, whatever A leaves behind */
#define LEAVES(m) (M[m].beatop != JOIN || FREEIDS != 0) /* what an answer that is lost leaves behind has an end */
#ifdef STEADY
#define AWAY false        /* no outages */
#else
#define AWAY !calm
#endif
#else
#define LOSES (losses < LOSSES)
#define NOTE(x) x
#define GRANTS (rev < TOKENS)
#define FRESH (sids + 1)
#define JOINS(m) (sids < SESSIONS)
#define LEAVES(m) true
#define AWAY !hadaway
#endif
byte slow;                /* ticks until a clock may fall behind again */

#ifdef NO_S9
#define valid(m) (M[m].own != 0)
#else
#define valid(m) (M[m].own != 0 && M[m].age < TRUST) /* S9: not after trust ends, whatever the process has noticed */
#endif
#define trusts(m) (M[m].age < TRUST)
#define unowned (owner == 0 || !alive[owner])

#define show() say("@v %d %d\n", (valid(A) -> M[A].own : 0), (valid(B) -> M[B].own : 0))

/* S1: at most one trusts a lease of the shard. S6: no lease is valid again under the same token. */
inline check() {
	show()
#ifndef LOGGED
	assert(!valid(A) || !valid(B) || taken[A] || taken[B]); /* S1 */
#ifndef MASK_S6
	assert(!(valid(A) && ended[A] >= M[A].own) && !(valid(B) && ended[B] >= M[B].own)); /* S6 */
#endif
#else
	skip
#endif
}

inline over(m) { /* the lease of m ends, its token is never granted here again (C1) */
	if
	:: M[m].own > M[m].burnt -> M[m].burnt = M[m].own
	:: else
	fi;
	if
	:: M[m].own > ended[m] -> ended[m] = M[m].own
	:: else
	fi;
	say("@e %d m%d ends its lease under token %d\n", m + 1, m + 1, M[m].own)
	M[m].own = 0;
	show()
}

/* C8: each step first revokes the lease whose trust has run out. */
inline wake(m) {
#ifndef NO_C8
	if
	:: M[m].own != 0 && !trusts(m) ->
#ifdef NO_C7
		skip /* it goes on under the old token once it trusts again */
#else
		over(m)
#endif
	:: else
	fi
#else
	skip
#endif
}

inline lost(m) { /* the session has no record any more */
	if
	:: M[m].own != 0 -> over(m)
	:: else
	fi;
	say("@e %d m%d is without a session\n", m + 1, m + 1)
	M[m].sid = 0; M[m].age = TTL; M[m].call = NONE; M[m].seen = 0; M[m].to = 0; M[m].got = 0;
	M[m].op = NONE; M[m].view = false; M[m].viewtok = 0; M[m].viewmine = false;
	M[m].peer = 0; M[m].quiet = 0; M[m].same = false
}

/* ---- The store ---- */

/* EVENTUALLY: TOKENS is the newest token. What is below 1 was the token of nothing that is left. */
inline renumber() {
#ifdef EVENTUALLY
	if
	:: token > TOKENS ->
		assert(M[A].own != 1 && M[B].own != 1 && M[A].got != 1 && M[B].got != 1);
		rev--; token--; top--; from--;
		below(M[A].burnt); below(M[B].burnt); below(M[A].seen); below(M[B].seen); below(ended[A]); below(ended[B]);
		below(M[A].own); below(M[B].own); below(M[A].got); below(M[B].got)
	:: else
	fi
#else
	skip
#endif
}
inline below(t) {
	if
	:: t > 0 -> t--
	:: else
	fi
}

/* A2: the token comes from the store's revision of the write. */
inline grant(to_) {
#ifdef NO_A2
	rev = token;
#else
	rev++;
#endif
	from = token; owner = to_; token = rev;
	say("@+ the store grants token %d to session %d\n", token, to_)
	assert(token > top); /* S2 */
	top = token;
#ifdef LOGGED
	cur = token;
#endif
	renumber()
}

/* M1: a heartbeat changes the version of the record. */
inline beaten(rec) {
	if
	:: M[A].peer == rec -> M[A].same = false
	:: else
	fi;
	if
	:: M[B].peer == rec -> M[B].same = false
	:: else
	fi;
	if
	:: M[A].evict == rec -> M[A].evictsame = false
	:: else
	fi;
	if
	:: M[B].evict == rec -> M[B].evictsame = false
	:: else
	fi
}

#if defined(NO_A1)
#define A1FREE(t) true
#elif defined(NO_A1OWNER)
#define A1FREE(t) (token == t)
#else
#define A1FREE(t) (token == t && unowned)
#endif
#ifdef NO_A1SELF
#define A1SELF(s) true
#else
#define A1SELF(s) alive[s]
#endif
#ifdef NO_A5
#define A5FROM(t) true
#else
#define A5FROM(t) (token == t)
#endif
#ifdef NO_A5TO
#define A5TO(s) true
#else
#define A5TO(s) alive[s]
#endif
#ifdef NO_R1
#define R1FROM(t) true
#else
#define R1FROM(t) (token == t)
#endif

#ifdef FORK
#ifdef REPLICA
#define COPIES "@e 0 the replica has what the store has\n"
#define GOESBACK "@e 0 the replica is promoted\n"
#else
#define COPIES "@e 0 a copy of the store is made\n"
#define GOESBACK "@e 0 the store goes back to the copy\n"
#endif
inline raise() {
	strange = false; rev = top + 1; token = rev; from = 0; top = rev; cur = rev;
	say("@+ another incarnation: tokens go on from %d\n", rev)
}
#if defined(BUG_FENCE) || defined(NO_I2)
#define BLIND true /* the fence of a write compares no incarnation */
#else
#define BLIND false
#endif
#define STRANGER (!strange || BLIND)
#else
#define STRANGER true
#endif

/* A1, A3, A5, R1, I2: the store applies a request about the shard. */
inline apply(op_, by, seen_, to_, res, tok) {
	res = NO; tok = 0;
	if
#if defined(FORK) && !defined(NO_I2)
	/* I2: a claim finds another incarnation. Tokens go on from the clock, and no earlier lease is current. */
	:: strange && (op_ == CLAIM || op_ == GIVE) ->
		raise()
#endif
	:: else ->
		if
		/* A3: a repeated claim or transfer finds its own earlier success. */
		:: op_ == CLAIM && alive[by] && owner == by && from == seen_ && token != seen_ ->
			say("@+ the store has granted it before: token %d\n", token)
#ifdef NO_A3
			say("@+ it answers: not applied\n")
			assert(false) /* E1: the answer would be that it was not applied */
#else
			res = YES; tok = token
#endif
		:: op_ == GIVE && alive[by] && owner == to_ && from == seen_ && token != seen_ -> res = YES; tok = token;
			say("@+ the store has moved it before: token %d\n", token)
		/* A1: a claim takes effect if the record is as seen, no live session owns it, and the claimer has a record. */
		:: op_ == CLAIM && A1FREE(seen_) && A1SELF(by) && GRANTS -> grant(by); res = YES; tok = token
		/* A5: a transfer takes effect from exactly the fence named, to a session with a record. */
		:: op_ == GIVE && alive[by] && owner == by && A5FROM(seen_) && A5TO(to_) && GRANTS && !(owner == to_ && from == seen_) ->
			grant(to_); res = YES; tok = token
		/* R1: a release frees exactly the lease named. */
		:: op_ == FREE && owner == by && R1FROM(seen_) -> owner = 0; res = YES;
			say("@+ the store frees the shard, which had token %d\n", token)
		/* A5, C11: a preemption takes effect from exactly the token seen. */
		:: op_ == TAKE && alive[by] && token == seen_ && GRANTS ->
			if
			:: owner == M[A].sid -> taken[A] = true
			:: else
			fi;
			grant(by); res = YES; tok = token
		:: else -> say("@+ the store refuses it\n")
		fi
	fi
}

#ifdef LOGGED
#ifdef NO_F1FENCE
#define CURRENT(s, t) true
#else
#define CURRENT(s, t) (owner == s && token == t)
#endif
#ifdef NO_F1NUMBER
#define NEXT(n) true
#else
#define NEXT(n) (n == head + 1)
#endif
/* F1, F2, L1: a commit takes effect under the newest grant only, and with the next number. */
inline commit(by, tok, n, id, res) {
	if
#ifdef FORK
	/* I2: so does a write. */
	:: strange && !BLIND -> raise(); res = NO
#endif
	:: STRANGER && !CURRENT(by, tok) -> res = NO; say("@+ the store refuses it: token %d is not current\n", tok) /* F2: fenced, also where the number is wrong as well */
	:: STRANGER && CURRENT(by, tok) && !NEXT(n) -> res = DENIED; say("@+ the store refuses it: commit %d is not the next one\n", n) /* F2: a conflict */
	:: else ->
		say("@+ the store accepts write %d as commit %d under token %d\n", id, head + 1, tok)
		assert(tok == cur);               /* S3: the fence is the newest grant of the store's history, */
#ifndef NO_I2
		assert(tok == top);               /*   and of all histories (I2) */
#endif
		assert(told[id] != 2 || FORKED);            /* E1: the caller was not told "not applied" */
		assert(log[1] != id && log[2] != id && log[3] != id); /* no write is doubled */
		assert(head == 0 || logtok[head] <= tok); /* L1: tokens do not decrease */
		head++; log[head] = id; logtok[head] = tok; res = YES
	fi
}
#endif

/* ---- The network and the store: requests arrive in any order, or not at all ---- */

/* M1: a heartbeat succeeds exactly while the record exists, and changes its version. */
inline storebeat(m) {
	if
	:: alive[M[m].beatsid] ->
#ifndef NO_M1
		say("@a %d beat the heartbeat changes the record of session %d\n", m + 1, M[m].beatsid)
		beaten(M[m].beatsid);
#else
		say("@a %d beat the store answers the heartbeat, and changes nothing\n", m + 1)
#endif
		M[m].beat = YES
	:: else ->
		say("@a %d beat session %d has no record any more\n", m + 1, M[m].beatsid)
#ifdef NO_M1GONE
		say("@+ it answers all the same\n")
		M[m].beat = YES
#else
		M[m].beat = NO
#endif
	fi
}

/* M3: a late or repeated join fails, nothing revives a session. */
inline storejoin(s, res) {
	if
#ifdef NO_M3
	:: !alive[s] -> say("@+ the store makes a record of session %d\n", s) alive[s] = true; used[s] = true; res = YES
#else
	:: !used[s] -> say("@+ the store makes a record of session %d\n", s) alive[s] = true; used[s] = true; res = YES
#endif
	:: else -> say("@+ session %d had its record before: refused\n", s) res = DENIED
	fi
}

#ifdef NO_M2
#define M2SAME(m) true
#else
#define M2SAME(m) M[m].evictsame
#endif
#ifdef OUTAGE
#define NEVER true /* C5: an outage evicts nobody */
#else
#define NEVER false
#endif
/* M2: an eviction removes exactly the version named. */
inline storeevict(m) {
	if
	:: alive[M[m].evict] && M2SAME(m) ->
		say("@a %d evict the store removes the record of session %d\n", m + 1, M[m].evict)
		alive[M[m].evict] = false; assert(!NEVER)
	:: else -> say("@a %d evict an eviction of session %d finds another version: refused\n", m + 1, M[m].evict)
	fi;
	M[m].evict = 0; M[m].evictsame = false
}

#ifdef URGENT
#define answers(m) (mode != 1 && mode != 3 && !(m == A && deaf))
#define serves (mode == 0 || mode == 3)
#else
#define answers(m) true
#define serves true
#endif

inline forget(m) { M[m].late = NONE; M[m].latesid = 0; M[m].lateseen = 0; M[m].lateto = 0 }
inline forgetw(m) { M[m].latew = 0; M[m].latewsid = 0; M[m].latewtok = 0; M[m].latewn = 0 }

#ifdef TAKEOVER
#define JOINDUE(s) gone[s] /* as late as does most harm */
#else
#define JOINDUE(s) true
#endif

#ifdef NO_R2HELD
#define HELDGOES true
#else
#define HELDGOES false
#endif
#if defined(LOGGED) && !defined(NO_R2LOG)
#define UNUSED (head == 0)
#else
#define UNUSED true
#endif

proctype Network(byte m) {
	mtype r = NONE; byte t;
	do
	:: atomic { serves && M[m].beat == ASKED && M[m].beatop == BEAT -> storebeat(m) }
#ifdef BUG_CUTOFF
	/* A master that is cut off from its replica answers. The replica was promoted, and serves the others. */
	:: atomic { m == A && M[m].beat == ASKED && M[m].beatop == BEAT ->
		say("@a 1 beat a master that is cut off answers, and the promoted one hears nothing\n")
		M[m].beat = YES }
#endif
	:: atomic { serves && M[m].beat == ASKED && M[m].beatop == JOIN && (answers(m) || LEAVES(m)) ->
		say("@a %d beat the join of session %d arrives\n", m + 1, M[m].beatsid) storejoin(M[m].beatsid, M[m].beat) }
	:: atomic { serves && M[m].evict != 0 -> storeevict(m) }
	:: atomic { serves && M[m].call == ASKED -> say("@a %d call the %e of session %d arrives\n", m + 1, M[m].op, M[m].sid) apply(M[m].op, M[m].sid, M[m].seen, M[m].to, r, t);
		M[m].call = r; M[m].got = t; check();
#ifdef LATECALLS
		if
		:: M[m].late == NONE -> say("@k %d call late\n", m + 1) M[m].late = M[m].op; M[m].latesid = M[m].sid; M[m].lateseen = M[m].seen; M[m].lateto = M[m].to
		:: skip
		fi;
#endif
		r = NONE; t = 0
	   }
	/* S15: a late or repeated request arrives; nobody waits for its reply. */
	:: atomic { serves && M[m].late != NONE -> say("@a %d late a late %e of session %d arrives\n", m + 1, M[m].late, M[m].latesid) apply(M[m].late, M[m].latesid, M[m].lateseen, M[m].lateto, r, t);
		forget(m); check(); r = NONE; t = 0
	   }
	:: atomic { serves && M[m].latejoin != 0 && JOINDUE(M[m].latejoin) ->
		say("@a %d latejoin a late join of session %d arrives\n", m + 1, M[m].latejoin) storejoin(M[m].latejoin, r); M[m].latejoin = 0; r = NONE }
#ifdef LOCKS
	/* R2: the record of a lock goes when it is free and nothing was committed under it. */
	:: atomic { m == A && (owner == 0 || HELDGOES) && token != 0 && UNUSED -> say("@e 0 the record of the lock goes\n")
		owner = 0; token = 0; from = 0;
#ifdef LOGGED
		assert(head == 0 || told[log[1]] != 1); /* no acknowledged write is lost */
#endif
	   }
#endif
#ifdef LOSSY
	:: atomic { M[m].late != NONE -> forget(m) }
	:: atomic { M[m].latejoin != 0 -> M[m].latejoin = 0 }
	:: atomic { M[m].evict != 0 -> say("@x %d evict the eviction is lost\n", m + 1) M[m].evict = 0; M[m].evictsame = false }
#endif
#ifdef TAKEOVER
	/* A request or a reply is lost: only the caller's time-out ends the call. */
	:: atomic { LOSES && (M[m].beat == ASKED || (M[m].beat == YES && LEAVES(m))) ->
		say("@x %d beat a message about the %e of m%d is lost\n", m + 1, M[m].beatop, m + 1) M[m].beat = WAIT; NOTE(losses++) }
	:: atomic { LOSES && (M[m].call == ASKED || M[m].call == YES) ->
		say("@x %d call a message about the %e of m%d is lost\n", m + 1, M[m].op, m + 1) M[m].call = WAIT; NOTE(losses++) }
	:: atomic { LOSES && M[m].evict != 0 -> say("@x %d evict the eviction is lost\n", m + 1) M[m].evict = 0; M[m].evictsame = false; NOTE(losses++) }
	:: atomic { deaf && m == A && (M[A].beat == YES || M[A].beat == NO || M[A].beat == DENIED) ->
		say("@x %d beat the answer does not reach m1\n", m + 1) M[A].beat = WAIT }
	:: atomic { deaf && m == A && (M[A].call == YES || M[A].call == NO) -> say("@x %d call the answer does not reach m1\n", m + 1) M[A].call = WAIT }
#endif
#ifdef LOGGED
	:: atomic { M[m].write == ASKED -> say("@a %d write write %d arrives, with number %d\n", m + 1, M[m].wid, M[m].wn) commit(M[m].wsid, M[m].wtok, M[m].wn, M[m].wid, r); M[m].write = r; r = NONE;
		if
		:: M[m].latew == 0 -> say("@k %d write latew\n", m + 1) M[m].latew = M[m].wid; M[m].latewsid = M[m].wsid; M[m].latewtok = M[m].wtok; M[m].latewn = M[m].wn
		:: skip
		fi
	   }
	:: atomic { M[m].latew != 0 -> say("@a %d latew write %d arrives once more, with number %d\n", m + 1, M[m].latew, M[m].latewn) commit(M[m].latewsid, M[m].latewtok, M[m].latewn, M[m].latew, r); forgetw(m); r = NONE }
	:: atomic { M[m].latew != 0 -> forgetw(m) }
#endif
	od
}

/* ---- A member ---- */

inline hung(m) { M[m].call = NONE; M[m].op = NONE; M[m].seen = 0; M[m].to = 0; M[m].got = 0 }

/* C4: a call ends with its time-out. If its request is still under way it may arrive late. */
inline giveup(m) {
	say("@e %d m%d waits no longer for the answer to its %e\n", m + 1, m + 1, M[m].op)
#ifdef LATECALLS
	if
	:: M[m].call == ASKED && M[m].late == NONE -> say("@k %d call late\n", m + 1)
		M[m].late = M[m].op; M[m].latesid = M[m].sid; M[m].lateseen = M[m].seen; M[m].lateto = M[m].to
	:: skip
	fi;
#endif
	hung(m)
}

inline beatdone(m) { M[m].beat = NONE; M[m].beatop = NONE; M[m].beatsid = 0; M[m].beatage = 0 }

#ifdef NO_C1
#define UNBURNT(m, t) true
#else
#define UNBURNT(m, t) (t > M[m].burnt)
#endif
/* S4, S5, C1: a confirmed grant starts a lease, if trust has not ended and the token was not given away. */
inline granted(m, t) {
	if
	:: t > M[m].own && trusts(m) && UNBURNT(m, t) ->
		if
		:: M[m].own != 0 -> over(m)
		:: else
		fi;
		M[m].own = t; say("@e %d m%d begins a lease under token %d\n", m + 1, m + 1, t)
	:: else
	fi
}

#ifdef URGENT
#define DID(m) M[m].did = true
#define beatdue(m) (!M[m].did && (trusts(m) || hears(m)))
#define beatlate(m) (M[m].beatage >= TRUST)
#define calllate(m) (M[m].call == WAIT || mode != 0)
#else
#define DID(m) skip
#define beatdue(m) true
#define beatlate(m) true
#define calllate(m) true
#endif
#ifdef NO_C5
#define PROVEN(m) true
#else
#define PROVEN(m) (M[m].age <= LIMIT)
#endif
#ifdef URGENT
#define SEEN(m) (M[m].same && alive[M[m].peer])
#else
#define SEEN(m) true
#endif
/* C6: after a lapse of trust a member sends heartbeats only while its reads are answered. */
#ifdef NO_C6
#define hears(m) true
#else
#define hears(m) (M[m].read <= LIMIT)
#endif
#define live(m) (M[m].up && M[m].sid != 0 && !(M[m].beat != NONE && M[m].beatop == JOIN))

inline watch(m, s) {
	atomic { WATCHES(m) && live(m) && answers(m) && M[m].peer == 0 && alive[s] && M[m].sid != s && !gone[s] -> wake(m);
		say("@e %d m%d sees session %d\n", m + 1, m + 1, s)
		M[m].peer = s; M[m].same = true; M[m].quiet = 0 }
}

inline dead(s) {
	atomic { alive[s] && M[A].sid != s && M[B].sid != s -> say("@e 0 session %d, whose process has ended, is evicted\n", s) alive[s] = false }
}

inline restarted(m) {
	if
	:: M[m].own != 0 -> over(m)
	:: else
	fi;
	say("@e %d m%d restarts\n", m + 1, m + 1)
	hung(m); beatdone(m); M[m].evict = 0; M[m].evictsame = false;
	M[m].view = false; M[m].viewtok = 0; M[m].viewmine = false;
	M[m].peer = 0; M[m].quiet = 0; M[m].same = false; M[m].burnt = 0;
#ifndef NO_S10
	M[m].sid = 0; M[m].age = TTL
#endif
}

#ifdef TIMED
#define SUCCESSOR M[m].peer
#else
#define SUCCESSOR M[1 - m].sid
#endif
#ifdef REPLICA
#define KEPT(n, id) ((forked && log[n] == id) || (!forked && savehead >= n))
#define TAKENBACK false
#define READS (forked || (savehead == head && savetoken == token))
#else
#define KEPT(n, id) true
#define TAKENBACK FORKED
#define READS true
#endif
#ifdef LOGGED
#define IDLE(m) (M[m].write == NONE)
inline written(m) {
	M[m].write = NONE; M[m].wsid = 0; M[m].wtok = 0; M[m].wn = 0; M[m].wid = 0; M[m].again = false
}
/* No acknowledged write is lost. */
inline acknowledge(m) { say("@r %d write m%d learns that write %d was applied\n", m + 1, m + 1, M[m].wid) told[M[m].wid] = 1; assert(log[M[m].wn] == M[m].wid || TAKENBACK); written(m) }
inline settle(m) {
	if
	:: log[M[m].wn] == M[m].wid -> acknowledge(m)
	:: else -> say("@e %d m%d reports write %d as not applied, as the log shows\n", m + 1, m + 1, M[m].wid) told[M[m].wid] = 2; written(m)
	fi
}
#else
#define IDLE(m) true
#endif
#ifdef LATEVIEWS
#define NOTLATE(m) true
#else
#define NOTLATE(m) (M[m].own == 0 && token > M[m].burnt)
#endif
#if defined(URGENT) && defined(NO_C2)
#define NEWS(m) false
#elif defined(URGENT)
#define NEWS(m) (M[m].own == 0 && token > M[m].burnt && trusts(m))
#else
#define NEWS(m) NOTLATE(m)
#endif

/* C2, S4: a view that names this session is a grant, unless its token was given away (C1).
   C11: one that names another lease ends this one. */
inline learn(m, t, mine) {
	if
	:: M[m].own != 0 && t > M[m].own ->
		taken[m] = false;
#ifndef NO_C11
		over(m)
#endif
	:: else
	fi;
#ifndef NO_C2
	if
	:: mine && M[m].own == 0 -> granted(m, t)
	:: else
	fi
#endif
}


proctype Member(byte m) {
	do
#ifdef TIMED
#ifdef ROLES
	/* The heartbeats of B are applied and answered at once. */
	:: atomic { m == B && live(m) && M[m].age > 0 -> wake(m);
		if
		:: alive[M[m].sid] -> say("@e 2 a heartbeat of m2 is answered at once\n") beaten(M[m].sid); M[m].age = 0; check()
		:: else -> say("@e 2 a heartbeat of m2 is refused: it has no record\n") lost(m)
		fi }
#endif
	/* A heartbeat. S8: its age counts from here. */
	:: atomic { live(m) && SLOW(m) && M[m].beat == NONE && beatdue(m) -> wake(m);
		say("@s %d beat m%d sends a heartbeat\n", m + 1, m + 1)
		M[m].beat = ASKED; M[m].beatop = BEAT; M[m].beatsid = M[m].sid; M[m].beatage = 0; DID(m) }

	/* C10, S8: the answer counts from its sending. C5: one that comes later than the limit breaks the chain. */
	:: atomic { M[m].up && M[m].beat == YES && answers(m) -> wake(m);
		say("@r %d beat m%d hears that its %e %d ticks ago succeeded\n", m + 1, m + 1, M[m].beatop, M[m].beatage)
		if
		:: M[m].beatsid == M[m].sid ->
#ifndef NO_C5
			if
			:: M[m].age > LIMIT -> M[m].quiet = 0
			:: else
			fi;
#endif
#ifdef NO_C10
			M[m].age = 0;
#else
			if
			:: M[m].beatage < M[m].age -> M[m].age = M[m].beatage
			:: else
			fi;
#endif
			say("@+ trust: %d ticks\n", (trusts(m) -> TRUST - M[m].age : 0))
		:: else
		fi;
		beatdone(m); check() }

	/* M1: the session is lost. */
	:: atomic { M[m].up && M[m].beat == NO && answers(m) ->
		say("@r %d beat m%d hears that its session is gone\n", m + 1, m + 1)
		if
		:: M[m].beatsid == M[m].sid -> lost(m)
		:: else
		fi;
		beatdone(m) }

	/* C4: a heartbeat's time-out. */
	:: atomic { M[m].up && M[m].beat != NONE && M[m].beatop == BEAT && beatlate(m) -> wake(m);
		say("@e %d m%d waits no longer for the answer to its heartbeat\n", m + 1, m + 1) beatdone(m) }

	/* C3: each attempt to join has a fresh session. Its sending counts as that of a heartbeat (S8). */
	:: atomic { M[m].up && M[m].sid == 0 && M[m].beat == NONE && JOINS(m) ->
		M[m].sid = FRESH; NOTE(sids++);
#ifdef EVENTUALLY
		used[M[m].sid] = false; gone[M[m].sid] = false;
#endif
		say("@s %d beat m%d sends a join, as session %d\n", m + 1, m + 1, M[m].sid)
		M[m].beat = ASKED; M[m].beatop = JOIN; M[m].beatsid = M[m].sid; M[m].beatage = 0; DID(m) }
	/* C4: a join's time-out. Its request may arrive later. */
	:: atomic { M[m].up && M[m].beat != NONE && M[m].beatop == JOIN && beatlate(m) ->
		say("@e %d m%d waits no longer for the answer to its join\n", m + 1, m + 1)
#ifdef NO_C3
		say("@s %d beat m%d sends the join once more, as session %d\n", m + 1, m + 1, M[m].beatsid)
		M[m].beat = ASKED; M[m].beatage = 0 /* the same session once more */
#else
		lost(m); beatdone(m)
#endif
	   }
	/* C3: a join that finds its record there starts no trust. */
	:: atomic { M[m].up && M[m].beat == DENIED && answers(m) ->
		say("@r %d beat m%d hears that its record is there already\n", m + 1, m + 1)
#ifdef NO_C3
		M[m].age = M[m].beatage; beatdone(m); check()
#else
		lost(m); beatdone(m)
#endif
	   }

	/* O1: a read of the members: one appears, changes, or is gone for ever (M3). */
	:: watch(m, 1)
	:: watch(m, 2)
	:: watch(m, 3)
#if SESSIONS > 3
	:: watch(m, 4)
#endif
#if SESSIONS > 4
	:: watch(m, 5)
	:: watch(m, 6)
#endif
	:: atomic { live(m) && answers(m) && M[m].peer != 0 && !alive[M[m].peer] -> wake(m);
		say("@e %d m%d sees that session %d is gone\n", m + 1, m + 1, M[m].peer)
#ifdef TAKEOVER
		gone[M[m].peer] = true;
#endif
		M[m].peer = 0; M[m].same = false; M[m].quiet = 0 }
	:: atomic { live(m) && answers(m) && M[m].peer != 0 && alive[M[m].peer] && !M[m].same -> wake(m);
		say("@e %d m%d sees a heartbeat of session %d: its silence begins anew\n", m + 1, m + 1, M[m].peer)
		M[m].same = true; M[m].quiet = 0 }

	/* C5: a member evicts one that was silent for its TTL, within the limit after its own newest link. */
	:: atomic { live(m) && M[m].peer != 0 && M[m].quiet >= TTL && M[m].evict == 0 && answers(m) && PROVEN(m) && SEEN(m) -> wake(m);
		say("@s %d evict m%d saw %d ticks of silence, and evicts session %d\n", m + 1, m + 1, M[m].quiet, M[m].peer)
		M[m].evict = M[m].peer; M[m].evictsame = M[m].same }

	/* C14: the lock of the other process's host is free, so that process has ended. */
#ifdef NO_C14
	:: atomic { m == B && live(m) && M[m].peer != 0 && M[m].evict == 0 && answers(m) -> wake(m);
		say("@s %d evict m%d finds the host lock of session %d free, and evicts it\n", m + 1, m + 1, M[m].peer)
		M[m].evict = M[m].peer; M[m].evictsame = M[m].same }
#endif

#ifndef NO_C7
	/* C8: the timer. */
	:: atomic { M[m].up && M[m].own != 0 && !trusts(m) -> over(m) }
#endif
#else
	/* Without time: the lease of m ends at any moment, or m learns that its session has ended. */
	:: atomic { M[m].own != 0 -> over(m) }
	:: atomic { M[m].sid != 0 && !alive[M[m].sid] && IDLE(m) -> say("@e %d m%d learns that session %d is gone\n", m + 1, m + 1, M[m].sid) lost(m) }
	:: atomic { M[m].sid == 0 && sids < SESSIONS -> say("@e %d m%d joins as session %d\n", m + 1, m + 1, sids + 1) sids++; M[m].sid = sids; alive[sids] = true; used[sids] = true; M[m].age = 0 }
#ifdef LOGGED
	/* Anybody may be evicted at any moment: it may have been paused. */
	:: atomic { M[1 - m].sid != 0 && alive[M[1 - m].sid] -> say("@e 0 session %d is evicted\n", M[1 - m].sid) alive[M[1 - m].sid] = false }
#else
	/* The session of a process that has ended is evicted. */
	:: dead(1)
	:: dead(2)
	:: dead(3)
#endif
#endif

#ifndef OUTAGE
	/* A claim of a free shard. The record seen is as new as it can be; the request may be late. */
	:: atomic { live(m) && trusts(m) && M[m].own == 0 && M[m].call == NONE && unowned && answers(m) && GRANTS -> wake(m);
		say("@s %d call m%d sees the shard free after token %d, and claims it\n", m + 1, m + 1, token)
		M[m].call = ASKED; M[m].op = CLAIM; M[m].seen = token;
#ifdef NO_S4
		M[m].own = token + 1; say("@e %d m%d begins a lease under token %d\n", m + 1, m + 1, token + 1) check()
#endif
	   }

	/* C7, C2: a record that names this session with a token that was revoked: a new token, before it serves again. */
	:: atomic { live(m) && trusts(m) && M[m].own == 0 && M[m].call == NONE && owner == M[m].sid && token <= M[m].burnt && answers(m) && GRANTS ->
		say("@s %d call m%d asks for a new token instead of %d\n", m + 1, m + 1, token)
		M[m].call = ASKED; M[m].op = GIVE; M[m].seen = token; M[m].to = M[m].sid }

#if defined(GIVING) || defined(COMMITS)
	/* S12, C1: a release, after the work was joined. The token is given away as it is sent. */
	:: atomic { live(m) && M[m].own != 0 && trusts(m) && M[m].call == NONE ->
		say("@s %d call m%d sends a release of token %d\n", m + 1, m + 1, M[m].own)
		M[m].call = ASKED; M[m].op = FREE; M[m].seen = M[m].own;
#ifndef NO_S12
		over(m)
#endif
	   }
#ifdef GIVING
	/* S12, C1, A5, C13: a hand-over to the other member, likewise. */
	:: atomic { live(m) && M[m].own != 0 && trusts(m) && M[m].call == NONE && SUCCESSOR != 0 ->
		say("@s %d call m%d hands token %d over to session %d\n", m + 1, m + 1, M[m].own, SUCCESSOR)
		M[m].call = ASKED; M[m].op = GIVE; M[m].seen = M[m].own; M[m].to = SUCCESSOR; over(m) }
#endif
#endif

	/* S4, S5: the reply to a call about the shard. */
	:: atomic { M[m].up && M[m].call == YES && answers(m) -> wake(m);
		say("@r %d call m%d hears that its %e succeeded\n", m + 1, m + 1, M[m].op)
		if
		:: M[m].op == CLAIM || M[m].op == TAKE || (M[m].op == GIVE && M[m].to == M[m].sid) -> granted(m, M[m].got)
		:: M[m].op == FREE && M[m].own == M[m].seen && M[m].own != 0 -> over(m)
		:: else
		fi;
		hung(m); check() }
	:: atomic { M[m].up && M[m].call == NO && answers(m) -> wake(m);
		say("@r %d call m%d hears that its %e was refused\n", m + 1, m + 1, M[m].op) hung(m) }

#ifndef NO_C4
	/* C4: the time-out of a call about the shard. Its outcome is unknown. */
	:: atomic { M[m].up && M[m].call != NONE && calllate(m) -> wake(m); giveup(m) }
#endif

	/* O1, S13: a view of the shard's record, as it is now. It may arrive later. */
	:: atomic { live(m) && !M[m].view && answers(m) && ((owner == M[m].sid && NEWS(m)) || (M[m].own != 0 && token > M[m].own)) ->
#ifdef LATEVIEWS
		say("@a %d view a view leaves for m%d: session %d has token %d\n", m + 1, m + 1, owner, token)
		M[m].view = true; M[m].viewtok = token; M[m].viewmine = (owner == M[m].sid) }
	:: atomic { M[m].up && M[m].view ->
		wake(m); say("@r %d view m%d gets the view that has token %d\n", m + 1, m + 1, M[m].viewtok) learn(m, M[m].viewtok, M[m].viewmine); M[m].view = false; M[m].viewtok = 0; M[m].viewmine = false; check() }
#else
		say("@e %d m%d sees session %d with token %d\n", m + 1, m + 1, owner, token)
		wake(m); learn(m, token, owner == M[m].sid); check() }
#endif
#endif

#ifdef PREEMPT
	/* C11, A5: another program takes the shard, in the name of this member. */
	:: atomic { live(m) && trusts(m) && m == B && M[m].own == 0 && M[m].call == NONE && GRANTS ->
		say("@s %d call another program takes the shard for m2: it saw token %d\n", m + 1, token)
		M[m].call = ASKED; M[m].op = TAKE; M[m].seen = token }
#endif

#ifdef GIVING
	/* S10: a process that restarts has forgotten everything, and is a new member. */
	:: atomic { M[m].up && M[m].sid != 0 ->
		if
		:: M[m].call == ASKED && M[m].late == NONE -> say("@k %d call late\n", m + 1)
			M[m].late = M[m].op; M[m].latesid = M[m].sid; M[m].lateseen = M[m].seen; M[m].lateto = M[m].to
		:: skip
		fi;
		restarted(m) }
#endif

#ifdef LOGGED
	/* F1: a commit, under this lease and with the next number. */
	:: atomic { M[m].own != 0 && M[m].write == NONE && ids < WRITES ->
		say("@s %d write m%d sends write %d under token %d, with number %d\n", m + 1, m + 1, ids + 1, M[m].own, head + 1)
		ids++; M[m].write = ASKED; M[m].wsid = M[m].sid; M[m].wtok = M[m].own; M[m].wn = head + 1; M[m].wid = ids; M[m].again = false }
	/* The caller is told that it was applied. */
	:: atomic { M[m].write == YES && KEPT(M[m].wn, M[m].wid) -> acknowledge(m) }
	/* E1, F2: a first attempt that was refused was not applied. After a repeat the log says. */
	:: atomic { (M[m].write == NO || M[m].write == DENIED) && (!M[m].again || READS) ->
		if
#ifdef BUG_UPDATE
		:: M[m].write == DENIED && logtok[M[m].wn] == M[m].wtok -> acknowledge(m) /* it finds a write of its lease, and takes it for its own */
#endif
		:: !M[m].again -> say("@r %d write m%d reports write %d as not applied\n", m + 1, m + 1, M[m].wid) told[M[m].wid] = 2; written(m)
		:: M[m].again && READS -> settle(m)
		fi }
	/* C4, E1, S16: no answer: the outcome is unknown. */
	:: atomic { M[m].write != NONE && M[m].write != WAIT ->
		say("@e %d m%d waits no longer for the answer to write %d\n", m + 1, m + 1, M[m].wid)
#ifdef NO_E1
		say("@e %d m%d reports write %d as not applied\n", m + 1, m + 1, M[m].wid)
		told[M[m].wid] = 2; assert(log[M[m].wn] != M[m].wid); written(m)
#else
		M[m].write = WAIT
#endif
	   }
	/* F1, S15: the same write is sent again, with its number, while its lease is valid; */
	:: atomic { M[m].write == WAIT && M[m].own == M[m].wtok ->
#ifdef NO_S15
		M[m].wn = head + 1;
#endif
		say("@s %d write m%d sends write %d once more, with number %d\n", m + 1, m + 1, M[m].wid, M[m].wn) M[m].write = ASKED; M[m].again = true }
	/* once its fence is dead, the log says for ever whether it was applied. */
	:: atomic { M[m].write == WAIT && !(owner == M[m].wsid && token == M[m].wtok) && READS -> settle(m) }
#endif
	od
}

/* ---- Time and faults ---- */

inline older(m) {
	if
	:: M[m].age < TTL -> M[m].age++
	:: else
	fi;
	if
	:: M[m].beat != NONE && M[m].beatage < TTL -> M[m].beatage++
	:: else
	fi;
	if
	:: M[m].peer != 0 && M[m].quiet < TTL -> M[m].quiet++
	:: else
	fi
}

inline lapse(m) {
	if
	:: M[m].own != 0 && M[m].age >= TRUST && M[m].own > ended[m] -> ended[m] = M[m].own
	:: else
	fi;
	M[m].did = false
}

inline hearing(m) {
	if
	:: answers(m) -> M[m].read = 0
	:: M[m].up && !answers(m) && M[m].read <= LIMIT -> M[m].read++
	:: else
	fi
}

#ifdef EVENTUALLY
inline forgotten(s) { /* nothing names the session */
	if
	:: !NAMED(s) -> used[s] = false; gone[s] = false
	:: else
	fi
}
#endif

#ifdef TIMED
/* Both clocks tick, or one falls behind the other: by one tick in TTL at most. A process need not
   run between two ticks: that is a pause. */
proctype Clock() {
	do
	:: atomic {
#ifdef URGENT
		timeout ->
#endif
		if
		:: say("@t both clocks tick\n") older(A); older(B);
			if
			:: slow > 0 -> slow--
			:: else
			fi
		:: slow == 0 -> say("@t the clock of m1 ticks, that of m2 falls behind\n") older(A); slow = TTL - 1
		:: slow == 0 -> say("@t the clock of m2 ticks, that of m1 falls behind\n") older(B); slow = TTL - 1
		fi;
		lapse(A); lapse(B);
#ifdef URGENT
		hearing(A); hearing(B);
#endif
#ifdef EVENTUALLY
		forgotten(1); forgotten(2); forgotten(3); forgotten(4); ended[A] = 0; ended[B] = 0;
#endif
#ifdef TAKEOVER
		/* V1: while the store serves, no shard is without a valid lease for long. */
		if
		:: mode != 0 || (M[A].up && valid(A)) || (M[B].up && valid(B)) -> lack = 0
		:: else -> NOTE(lack++)
		fi;
		show()
#ifndef EVENTUALLY
		assert(lack <= BOUND);
#endif
		if
		:: AWAY && mode == 0 -> say("@e 0 the store serves nothing\n") mode = 1
		:: AWAY && mode == 0 -> say("@e 0 the store serves reads only\n") mode = 2
		:: AWAY && mode == 0 -> say("@e 0 the store takes requests and answers nothing\n") mode = 3
		:: mode != 0 -> say("@e 0 the store serves again\n") mode = 0; NOTE(hadaway = true)
		:: M[A].up && !deaf -> say("@e 3 no answer reaches m1 any more\n") deaf = true
#ifndef ALIVE
		:: M[A].up -> say("@e 1 m1 dies\n") M[A].up = false; lost(A); hung(A); M[A].age = TTL; M[A].burnt = 0; M[A].evict = 0; M[A].evictsame = false; beatdone(A); deaf = false; M[A].read = 0
#endif
#ifdef EVENTUALLY
		:: !calm && mode == 0 -> calm = true
#endif
		:: skip
		fi;
#endif
#ifdef OUTAGE
		if
		:: mode = 0; say("@e 0 the store serves\n")
		:: mode = 1; say("@e 0 the store serves nothing\n")
		:: mode = 2; say("@e 0 the store serves reads only\n")
		:: mode = 3; say("@e 0 the store takes requests and answers nothing\n")
		fi;
#endif
		check()
	   }
#ifdef EVENTUALLY
		; if
		:: calm && !(M[A].up && valid(A)) && !(M[B].up && valid(B)) -> accept: skip /* V1: not for ever */
		:: else
		fi
#endif
#ifdef ZENO
		; progress: skip /* time goes on: no endless work between two ticks */
#endif
	od
}

#endif

#ifdef FORK
/* I2: a failover to a copy of the store that lacks its last writes. */
proctype Faults() {
	do
#ifdef REPLICA
	/* I2: a read shows what the replica has. */
	:: atomic { head > shown && (
#ifdef BUG_READ
		true ||
#endif
		KEPT(head, log[head])) -> say("@e 0 a read shows commit %d\n", head) shown = head }
	:: atomic { (!saved || savehead != head || savetoken != token || saveowner != owner) && !forked -> saved = true;
#else
	:: atomic { !saved -> saved = true;
#endif
 say(COPIES) saveowner = owner; savetoken = token; savefrom = from; saverev = rev; savehead = head; savecur = cur;
		savealive[1] = alive[1]; savealive[2] = alive[2]; savealive[3] = alive[3] }
	:: atomic { saved && !forked -> forked = true; say(GOESBACK) strange = true;
		owner = saveowner; token = savetoken; from = savefrom; rev = saverev; cur = savecur;
		alive[1] = savealive[1]; alive[2] = savealive[2]; alive[3] = savealive[3];
		do
		:: head > savehead -> log[head] = 0; logtok[head] = 0; head--
		:: else -> break
		od;
#ifdef REPLICA
		assert(head >= shown && (told[1] != 1 || log[1] == 1)) /* nothing is taken back that was answered */
#endif
	   }
	od
}
#endif

init {
	atomic {
		/* Both have joined, and A has the shard. */
		sids = 2; alive[1] = true; alive[2] = true; used[1] = true; used[2] = true;
		owner = 1; token = 1; rev = 1; top = 1;
		M[A].up = true; M[A].sid = 1; M[A].own = 1;
		M[B].up = true; M[B].sid = 2;
#ifdef EVENTUALLY
		token = TOKENS; rev = TOKENS; top = TOKENS; M[A].own = TOKENS;
#endif
#ifdef CALLERS
		M[B].sid = 1; M[B].own = 1; alive[2] = false; used[2] = false; sids = 1;
#endif
		M[A].beat = NONE; M[B].beat = NONE; M[A].call = NONE; M[B].call = NONE; M[A].late = NONE; M[B].late = NONE;
		M[A].op = NONE; M[B].op = NONE; M[A].beatop = NONE; M[B].beatop = NONE;
#ifdef TIMED
#ifndef ROLES
		M[A].peer = 2; M[A].same = true;
#endif
		M[B].peer = 1; M[B].same = true;
		run Clock();
#endif
#ifdef LOGGED
		cur = 1; M[A].write = NONE; M[B].write = NONE;
#endif
#ifdef TAKEOVER
		if
#ifndef EVENTUALLY
		:: M[A].latejoin = 1; say("@s 1 latejoin the network keeps the join of m1, as session 1, and will repeat it\n") /* the network has repeated the join of A */
#endif
		:: skip
		fi;
#endif
#ifdef LEASE
		if
		:: skip; say("@i m1 is session 1 and has token 1; m2 is session 2\n")
		:: M[A].sid = 0; M[A].own = 0; M[A].age = TTL; M[A].peer = 0; M[A].same = false; alive[1] = false; used[1] = false; alive[2] = false; used[2] = false; alive[1] = true; used[1] = true; M[B].sid = 1; sids = 1; M[B].peer = 0; M[B].same = false;
			owner = 0; token = 0; rev = 0; top = 0; say("@i m2 has joined as session 1, m1 has not, and the shard is free\n") /* or A is about to join, and the shard is free */
		fi;
#endif
#ifdef FORK
		run Faults();
#endif
#ifdef CALLERS
		say("@i m1 and m2 are callers of one lease, of session 1 with token 1\n")
#elif !defined(LEASE)
		say("@i m1 is session 1 and has token 1; m2 is session 2\n")
#endif
		show()
		run Network(A); run Network(B); run Member(A); run Member(B)
	}
}
