; Trust ends before an observer has measured a TTL of silence: the lemma behind S1, for every TTL,
; margin and ratio of clock rates. trust.smt2 uses it with a margin of a tenth of the TTL.
;
; The holder sends a heartbeat at a. An observer sees it at b, after a, and evicts the holder at e.
; Nothing compares two clocks: each of these numbers is a duration by one clock.

(declare-const ttl Real)
(declare-const margin Real)
(declare-const ratio Real)       ; an observer's clock runs so many times as fast as the holder's, at most
(declare-const holder-a-e Real)  ; what the holder's clock runs from a to e
(declare-const holder-b-e Real)  ;   and from b to e
(declare-const observer-b-e Real) ; what the observer's clock runs from b to e

(assert (and (< 0.0 ttl) (<= 0.0 margin) (< margin ttl) (< 0.0 ratio)))
(assert (<= holder-b-e holder-a-e))                ; a heartbeat is seen after it was sent
(assert (<= observer-b-e (* ratio holder-b-e)))    ; the clocks' rates
(assert (<= ttl observer-b-e))                     ; the observer waited for a TTL of silence
(assert (< holder-a-e (- ttl margin)))             ; and the holder trusts its leases still

(push)
(echo "overlap where the margin covers the rates")
(assert (<= (* ratio (- ttl margin)) ttl))         ; while the holder's clock runs TTL less margin,
(check-sat)                                        ;   the observer's runs a TTL at most: unsat
(pop)

(push)
(echo "overlap with the least margin, TTL/500, and clocks that are wrong by 1000 ppm each")
(assert (<= ttl (* 500.0 margin)))
(assert (= ratio (/ 1001.0 999.0)))
(check-sat)                                        ; unsat
(pop)

(push)
(echo "overlap where the margin does not cover the rates")
(assert (> (* ratio (- ttl margin)) ttl))
(check-sat)                                        ; sat: the bound is exact
(pop)
