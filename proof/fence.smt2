; The fence by induction: S2, S3, S7, F1, T1 to T3 and S15, without clocks and without trust.
;
; This file is plain SMT-LIB 2. proof/induction.sh adds the questions. It asks Z3 for each
; invariant and each step: can the step lead from a state in which all invariants hold to a
; state in which this one does not? "unsat" means no.
;
; Each step is one atomic step of the store or of one process. Processes may be stopped between
; any two steps, for any time. The network may delay, repeat, reorder and lose: a request that
; was sent once may arrive at any later time, any number of times, or never.
;
; A line that ends with "; RULE x" stands for rule x. The script takes each out in turn.

(declare-sort Time 0)      ; names of states: a function of a Time is part of the state
(declare-sort Session 0)   ; one process under one session (C3, S10)
(declare-sort Shard 0)
(declare-sort Write 0)     ; one number and one nonce: a write that is sent again is the same Write
(declare-sort Job 0)       ; what one caller of Commit wants to happen once

; --- The store ---
(declare-const nobody Session)
(declare-fun member (Time Session) Bool)   ; the session has a record
(declare-fun used   (Time Session) Bool)   ; the session has had a record
(declare-fun owner  (Time Shard) Session)  ; the shard's record: its session
(declare-fun token  (Time Shard) Int)      ;   and its token
(declare-fun top    (Time) Int)            ; the namespace's greatest token
(declare-fun number (Time Shard) Int)      ; the shard's head: the number of commits
(declare-fun log    (Time Shard Int) Write) ; the commits, 1 to number

; --- The processes ---
(declare-fun holds   (Time Int) Bool)      ; the session of grant i believes that it holds grant i
(declare-fun sent    (Time Write) Bool)    ; the write was sent, once or more
(declare-fun acked   (Time Write) Bool)    ; the caller knows that the write was applied
(declare-fun refused (Time Write) Bool)    ; the caller knows that it was not, and never will be

; --- History: what happened. Properties and honest answers are stated with it ---
(declare-fun grants (Time) Int)            ; grants so far, in the store's order
(declare-fun last   (Time Shard) Int)      ; the shard's latest grant; 0 if there was none
(declare-fun over   (Time Int) Bool)       ; grant i ended by right: its holder gave it up, a preemption
                                           ;   named it, its session had ended, or tokens were raised
(declare-fun done   (Time Write) Bool)     ; the write took effect
(declare-fun breach (Time) Bool)           ; a write took effect under another lease than the current one

; --- What never changes ---
(declare-fun g-shard   (Int) Shard)        ; grant i: its shard,
(declare-fun g-session (Int) Session)      ;   its session
(declare-fun g-token   (Int) Int)          ;   and its token: together its fence
(declare-fun w-grant   (Write) Int)        ; the grant whose fence the write names
(declare-fun w-number  (Write) Int)
(declare-fun w-job     (Write) Job)

; --- The actors of the step that leaves a state ---
(declare-fun P (Time) Session)
(declare-fun H (Time) Shard)
(declare-fun K (Time) Int)                 ; a token
(declare-fun G (Time) Int)                 ; a grant that a request names
(declare-fun W (Time) Write)
(declare-fun Preempt (Time) Bool)

(define-fun max ((a Int) (b Int)) Int (ite (> a b) a b))
(define-fun granted ((t Time) (i Int)) Bool (and (<= 1 i) (<= i (grants t))))
(define-fun w-shard ((w Write)) Shard (g-shard (w-grant w)))
(define-fun named ((t Time) (i Int)) Bool  ; the shard's record is the fence of grant i
  (and (= (owner t (g-shard i)) (g-session i)) (= (token t (g-shard i)) (g-token i))))
(define-fun open ((t Time) (w Write)) Bool ; sent, with an unknown outcome
  (and (sent t w) (not (acked t w)) (not (refused t w))))

; --- What a step leaves as it is ---
(define-fun same-members ((now Time) (next Time)) Bool
  (forall ((s Session)) (and (= (member next s) (member now s)) (= (used next s) (used now s)))))
(define-fun same-records ((now Time) (next Time)) Bool
  (forall ((h Shard)) (and (= (owner next h) (owner now h)) (= (token next h) (token now h)))))
(define-fun same-grants ((now Time) (next Time)) Bool
  (and (= (grants next) (grants now))
       (forall ((h Shard)) (= (last next h) (last now h)))))
(define-fun same-over ((now Time) (next Time)) Bool (forall ((i Int)) (= (over next i) (over now i))))
(define-fun same-top ((now Time) (next Time)) Bool (= (top next) (top now)))
(define-fun same-log ((now Time) (next Time)) Bool
  (and (= (breach next) (breach now))
       (forall ((h Shard)) (= (number next h) (number now h)))
       (forall ((h Shard) (n Int)) (= (log next h n) (log now h n)))
       (forall ((w Write)) (= (done next w) (done now w)))))
(define-fun same-beliefs ((now Time) (next Time)) Bool (forall ((i Int)) (= (holds next i) (holds now i))))
(define-fun same-sent ((now Time) (next Time)) Bool (forall ((w Write)) (= (sent next w) (sent now w))))
(define-fun same-outcomes ((now Time) (next Time)) Bool
  (forall ((w Write)) (and (= (acked next w) (acked now w)) (= (refused next w) (refused now w)))))
(define-fun same-clients ((now Time) (next Time)) Bool
  (and (same-beliefs now next) (same-sent now next) (same-outcomes now next)))

; =================================================================================================
; The first state: an empty store.
(define-fun init ((t Time)) Bool
  (and (forall ((s Session)) (and (not (member t s)) (not (used t s))))
       (forall ((h Shard)) (and (= (owner t h) nobody) (= (token t h) 0) (= (number t h) 0) (= (last t h) 0)))
       (= (top t) 0) (= (grants t) 0) (not (breach t))
       (forall ((i Int)) (and (not (holds t i)) (not (over t i))))
       (forall ((w Write)) (and (not (sent t w)) (not (done t w)) (not (acked t w)) (not (refused t w))))))

; =================================================================================================
; The steps.

; M3, C3: a session joins, once.
(define-fun step-join ((now Time) (next Time)) Bool
  (let ((p (P now)))
  (and (not (= p nobody))
       (not (used now p)) ; RULE C3
       (forall ((s Session)) (and (= (member next s) (or (member now s) (= s p)))
                                  (= (used next s) (or (used now s) (= s p)))))
       (same-records now next) (same-top now next) (same-grants now next) (same-over now next)
       (same-log now next) (same-clients now next))))

; M2, C14, Close, Supersede: a session ends. Here at any time: the fence does not depend on why.
(define-fun step-end ((now Time) (next Time)) Bool
  (let ((p (P now)))
  (and (member now p)
       (forall ((s Session)) (and (= (member next s) (and (member now s) (not (= s p))))
                                  (= (used next s) (used now s))))
       (same-records now next) (same-top now next) (same-grants now next) (same-over now next)
       (same-log now next) (same-clients now next))))

; A2: what every grant of shard h to session p under token k does.
(define-fun grant ((now Time) (next Time) (h Shard) (p Session) (k Int)) Bool
  (let ((i (+ (grants now) 1)))
  (and (not (= p nobody)) (> k 0)
       (> k (top now)) ; RULE A2
       (= (top next) (max k (top now)))
       (= (grants next) i)
       (= (g-shard i) h) (= (g-session i) p) (= (g-token i) k)
       (forall ((x Shard)) (and (= (owner next x) (ite (= x h) p (owner now x)))
                                (= (token next x) (ite (= x h) k (token now x)))
                                (= (last next x) (ite (= x h) i (last now x))))))))

; A1, A2, A5: the store grants a claim. G is the lease that a preempting claim has seen.
(define-fun step-claim ((now Time) (next Time)) Bool
  (let ((p (P now)) (h (H now)) (seen (G now)))
  (and
       (member now p) ; RULE A1-claimer-lives
       (or (= (owner now h) nobody) (not (member now (owner now h))) (Preempt now)) ; RULE A1-shard-free
       (=> (Preempt now) (and (granted now seen) (= (g-shard seen) h)))
       (=> (Preempt now) (named now seen)) ; RULE A5-preempt-exact
       (grant now next h p (K now))
       (forall ((i Int)) (= (over next i)
         (or (over now i)
             (and (= i (last now h)) (< 0 i) (not (member now (g-session i))))
             (and (Preempt now) (= i seen)))))
       (same-members now next) (same-log now next) (same-clients now next))))

; A5: the store applies a transfer of lease G to session P. The holder of G sent it, perhaps long ago.
(define-fun step-transfer ((now Time) (next Time)) Bool
  (let ((i (G now)) (p (P now)))
  (and (granted now i)
       (named now i) ; RULE A5-transfer-exact
       (member now p) ; RULE A5-target-lives
       (grant now next (g-shard i) p (K now))
       (forall ((j Int)) (= (over next j) (or (over now j) (= j i))))
       (same-members now next) (same-log now next) (same-clients now next))))

; R1: the store applies a release of lease G. The record keeps the token.
(define-fun step-release ((now Time) (next Time)) Bool
  (let ((i (G now)))
  (and (granted now i)
       (named now i) ; RULE R1
       (forall ((x Shard)) (and (= (owner next x) (ite (= x (g-shard i)) nobody (owner now x)))
                                (= (token next x) (token now x))))
       (forall ((j Int)) (= (over next j) (or (over now j) (= j i))))
       (same-members now next) (same-top now next) (same-grants now next)
       (same-log now next) (same-clients now next))))

; R2: the record of a lock goes, and its head with it.
(define-fun step-forget ((now Time) (next Time)) Bool
  (let ((h (H now)))
  (and
       (= (owner now h) nobody) ; RULE R2-free
       (= (number now h) 0) ; RULE R2-no-commits
       (forall ((x Shard)) (and (= (owner next x) (ite (= x h) nobody (owner now x)))
                                (= (token next x) (ite (= x h) 0 (token now x)))
                                (= (number next x) (ite (= x h) 0 (number now x)))))
       (forall ((x Shard) (n Int)) (= (log next x n) (log now x n)))
       (forall ((w Write)) (= (done next w) (done now w)))
       (= (breach next) (breach now))
       (same-members now next) (same-top now next) (same-grants now next) (same-over now next)
       (same-clients now next))))

; I2: the base is raised to K, and the token of every record with it.
(define-fun step-raise ((now Time) (next Time)) Bool
  (and (> (K now) 0)
       (> (K now) (top now)) ; RULE I2
       (= (top next) (K now))
       (forall ((x Shard)) (and (= (owner next x) (owner now x)) (= (token next x) (K now))))
       (forall ((i Int)) (= (over next i) (or (over now i) (granted now i))))
       (same-members now next) (same-grants now next) (same-log now next) (same-clients now next)))

; S4: a process learns of grant G, from a reply or a view, however late.
(define-fun step-learn ((now Time) (next Time)) Bool
  (let ((g (G now)))
  (and (<= 1 g)
       (granted now g) ; RULE S4
       (forall ((i Int)) (= (holds next i) (or (holds now i) (= i g))))
       (same-members now next) (same-records now next) (same-top now next) (same-grants now next)
       (same-over now next) (same-log now next) (same-sent now next) (same-outcomes now next))))

; F1, S15: a process sends a new write, whether or not it trusts its lease. No step ends what it
; believes: it may be a zombie.
(define-fun step-send ((now Time) (next Time)) Bool
  (let ((w (W now)))
  (and (holds now (w-grant w))
       (not (sent now w)) (not (done now w)) (not (acked now w)) (not (refused now w)) ; a fresh nonce
       (<= 1 (w-number w))
       (<= (w-number w) (+ (number now (w-shard w)) 1)) ; RULE F1-number-from-a-head
       (forall ((v Write)) (not (and (open now v) (= (w-grant v) (w-grant w))))) ; RULE S15-one-in-flight
       (forall ((v Write)) (=> (and (sent now v) (= (w-job v) (w-job w))) (refused now v))) ; RULE S15-same-write-again
       (forall ((v Write)) (= (sent next v) (or (sent now v) (= v w))))
       (same-members now next) (same-records now next) (same-top now next) (same-grants now next)
       (same-over now next) (same-log now next) (same-beliefs now next) (same-outcomes now next))))

; F1: the store applies a write, on time, late, or for the second time.
(define-fun step-commit ((now Time) (next Time)) Bool
  (let ((w (W now)) (h (w-shard (W now))) (i (w-grant (W now))))
  (and (sent now w)
       (named now i) ; RULE F1-fence
       (= (w-number w) (+ (number now h) 1)) ; RULE F1-next-number
       (forall ((x Shard)) (= (number next x) (ite (= x h) (w-number w) (number now x))))
       (forall ((x Shard) (n Int)) (= (log next x n) (ite (and (= x h) (= n (w-number w))) w (log now x n))))
       (forall ((v Write)) (= (done next v) (or (done now v) (= v w))))
       (= (breach next) (or (breach now) (not (and (= i (last now h)) (not (over now i))))))
       (same-members now next) (same-records now next) (same-top now next) (same-grants now next)
       (same-over now next) (same-clients now next))))

; E1, S16: the caller gets a success, from the reply or from a head that shows the write.
(define-fun step-ack ((now Time) (next Time)) Bool
  (let ((w (W now)))
  (and (open now w)
       (done now w) ; RULE E1-success
       (forall ((v Write)) (and (= (acked next v) (or (acked now v) (= v w)))
                                (= (refused next v) (refused now v))))
       (same-members now next) (same-records now next) (same-top now next) (same-grants now next)
       (same-over now next) (same-log now next) (same-beliefs now next) (same-sent now next))))

; F2, S15: one arrival of the write is refused: as a *ConflictError if the fence is current and the
; number is not the next, as a *FencedError if the fence is not current. The caller compares the
; head before it says that the write was not applied, since an earlier arrival may have been.
(define-fun step-refuse ((now Time) (next Time)) Bool
  (let ((w (W now)) (n (number now (w-shard (W now)))) (current (named now (w-grant (W now)))))
  (and (open now w)
       (=> current (not (= (w-number w) (+ n 1))))
       (=> (not current) (<= n (w-number w))) ; RULE S15-compare-number
       (not (and (= n (w-number w)) (= (log now (w-shard w) n) w))) ; RULE S15-compare-nonce
       (forall ((v Write)) (and (= (refused next v) (or (refused now v) (= v w)))
                                (= (acked next v) (acked now v))))
       (same-members now next) (same-records now next) (same-top now next) (same-grants now next)
       (same-over now next) (same-log now next) (same-beliefs now next) (same-sent now next))))

; =================================================================================================
; The properties.

; S2, A2: tokens grow in the order of the grants, over the whole namespace.
(define-fun inv-S2 ((t Time)) Bool
  (forall ((i Int) (j Int)) (=> (and (granted t i) (granted t j) (< i j)) (< (g-token i) (g-token j)))))

; A2: a token is granted to one session.
(define-fun inv-A2 ((t Time)) Bool
  (forall ((i Int) (j Int)) (=> (and (granted t i) (granted t j) (= (g-token i) (g-token j)))
                                (= (g-session i) (g-session j)))))

; S3, F1: no write took effect but under the latest grant of its shard, before that ended.
(define-fun inv-S3 ((t Time)) Bool (not (breach t)))

; S7: a lease that did not end by right is the one in the shard's record.
(define-fun inv-S7 ((t Time)) Bool
  (forall ((i Int)) (=> (and (granted t i) (not (over t i))) (and (= i (last t (g-shard i))) (named t i)))))

; F1, T1, T3: what was acknowledged stays in the log, under its number.
(define-fun inv-F1-kept ((t Time)) Bool
  (forall ((w Write)) (=> (acked t w)
    (and (<= 1 (w-number w)) (<= (w-number w) (number t (w-shard w)))
         (= (log t (w-shard w) (w-number w)) w)))))

; F1, S15: what a caller asked for once took effect once at most.
(define-fun inv-F1-once ((t Time)) Bool
  (forall ((v Write) (w Write)) (=> (and (done t v) (done t w) (= (w-job v) (w-job w))) (= v w))))

; E1, S16: what was reported as not applied was not.
(define-fun inv-E1-refused ((t Time)) Bool
  (forall ((w Write)) (=> (refused t w) (not (done t w)))))

; T2, L1: the tokens in a log never decrease.
(define-fun inv-T2 ((t Time)) Bool
  (forall ((h Shard) (m Int) (n Int)) (=> (and (<= 1 m) (< m n) (<= n (number t h)))
    (<= (g-token (w-grant (log t h m))) (g-token (w-grant (log t h n)))))))

; The lemmas, which make them inductive.

; Every token that was granted or is in a record is at most the greatest.
(define-fun inv-top ((t Time)) Bool
  (and (<= 0 (top t)) (<= 0 (grants t))
       (forall ((i Int)) (=> (granted t i) (and (<= (g-token i) (top t)) (< 0 (g-token i))
                                                (not (= (g-session i) nobody)))))
       (forall ((h Shard)) (<= (token t h) (top t)))))

; last is the latest grant of the shard.
(define-fun inv-last ((t Time)) Bool
  (and (forall ((h Shard)) (and (<= 0 (last t h)) (<= (last t h) (grants t))
                                (=> (< 0 (last t h)) (= (g-shard (last t h)) h))))
       (forall ((i Int)) (=> (granted t i) (<= i (last t (g-shard i)))))))

; No record names a lease that is over.
(define-fun inv-dead ((t Time)) Bool
  (forall ((i Int)) (=> (over t i) (and (granted t i) (not (named t i))))))

; Processes believe in grants that were made, and write under these.
(define-fun inv-sent ((t Time)) Bool
  (and (forall ((i Int)) (=> (holds t i) (granted t i)))
       (forall ((w Write)) (=> (sent t w) (and (granted t (w-grant w)) (<= 1 (w-number w))
                                               (<= (w-number w) (+ (number t (w-shard w)) 1)))))
       (forall ((w Write)) (=> (or (acked t w) (refused t w)) (sent t w)))
       (forall ((w Write)) (=> (acked t w) (done t w)))))

; The log has exactly the writes that took effect, each under its number, in the order of leases.
(define-fun inv-log ((t Time)) Bool
  (and (forall ((h Shard)) (<= 0 (number t h)))
       (forall ((h Shard) (n Int)) (=> (and (<= 1 n) (<= n (number t h)))
         (and (done t (log t h n)) (= (w-shard (log t h n)) h) (= (w-number (log t h n)) n))))
       (forall ((w Write)) (=> (done t w)
         (and (sent t w) (<= (w-number w) (number t (w-shard w))) (= (log t (w-shard w) (w-number w)) w))))
       (forall ((h Shard) (m Int) (n Int)) (=> (and (<= 1 m) (< m n) (<= n (number t h)))
         (<= (w-grant (log t h m)) (w-grant (log t h n)))))))

; A refused write cannot take effect later either.
(define-fun inv-never ((t Time)) Bool
  (forall ((w Write)) (=> (refused t w)
    (or (<= (w-number w) (number t (w-shard w))) (over t (w-grant w))))))

; A lease has one write with an unknown outcome at most. If that was applied, it is the head.
(define-fun inv-open ((t Time)) Bool
  (and (forall ((v Write) (w Write)) (=> (and (open t v) (open t w) (= (w-grant v) (w-grant w))) (= v w)))
       (forall ((w Write)) (=> (and (open t w) (done t w) (not (over t (w-grant w))))
                               (= (number t (w-shard w)) (w-number w))))))

; Of the writes of one job all but one were refused.
(define-fun inv-job ((t Time)) Bool
  (forall ((v Write) (w Write)) (=> (and (sent t v) (sent t w) (= (w-job v) (w-job w)))
    (or (= v w) (refused t v) (refused t w)))))

; A session that has a record was used; nobody has none.
(define-fun inv-used ((t Time)) Bool
  (and (not (used t nobody)) (forall ((s Session)) (=> (member t s) (used t s)))))

; =================================================================================================
; Runs from the first state. proof/induction.sh asks Z3 for each: is there such a run?
; "can" is followed by steps that must be possible. "without" is followed by a rule, a property, and
; the steps of a run that breaks the property if the rule is taken out, and cannot if it is there.
; "spare" is followed by a rule that the induction does not need.
;
;; can join claim learn send commit ack transfer learn release
;; can join claim release forget claim end raise
;; can join claim learn send release refuse
;; can join claim learn send commit ack send refuse
;; can join join claim learn send end claim learn send commit ack refuse
;
;; without A2 S2 join claim release claim
;; without A2 S3 join claim learn send release claim commit
;; without A1-shard-free S7 join join claim claim
;; without A5-preempt-exact S7 join join claim release claim claim
;; without A5-transfer-exact S7 join join claim release claim transfer
;; without R1 S7 join join claim release claim release
;; without R2-free S7 join claim forget
;; without R2-no-commits F1-kept join claim learn send commit ack release forget
;; without I2 S3 join claim learn send raise commit
;; without S4 S3 join claim learn send commit
;; without F1-fence S3 join claim learn send release commit
;; without F1-next-number F1-kept join claim learn send commit ack send commit
;; without F1-number-from-a-head E1-refused join claim learn send refuse send commit commit
;; without S15-one-in-flight E1-refused join claim learn send commit send commit refuse
;; without S15-same-write-again F1-once join claim learn send commit release claim learn send commit
;; without S15-compare-nonce E1-refused join claim learn send commit refuse
;; without S15-compare-number E1-refused join claim learn send commit release claim learn send commit refuse
;; without E1-success F1-kept join claim learn send ack
;
;; spare C3
;; spare A1-claimer-lives
;; spare A5-target-lives
