// Package tenureprom exports the metrics of an Elector, and of the packages used with it, to
// Prometheus. It uses only exported names, so an application can have its own package of this
// kind.
//
//	metrics := tenureprom.New(nil)
//	o.Hooks = core.JoinHooks(o.Hooks, metrics.Hooks())
//	elector, err := core.NewElector(backend, o)
//	metrics.Watch(elector)
//	prometheus.MustRegister(metrics)
//
// The metrics, and their labels:
//
//	tenure_member_trusted                    1 while the session is trusted, else 0
//	tenure_member_halted                     1 once the store was found to be replaced
//	tenure_member_leaving                    1 from the start of a planned stop
//	tenure_member_eligible                   1 while it may own shards: core.Options.Eligible
//	tenure_member_joined                     1 while there is a session
//	tenure_trust_remaining_seconds           until leases end if no heartbeat succeeds
//	tenure_client_certificate_end_timestamp_seconds  of the client certificates that this process has read
//	tenure_ttl_seconds                       TTL of this member
//	tenure_members                           that live, as this member sees it
//	tenure_members_silent                    of these, without a heartbeat for their TTL
//	tenure_members_troubled                  of these, in trouble: core.View.Troubled
//	tenure_shards_known                      seen or wanted, without reserved ones
//	tenure_shards_contended                  that this member contends for
//	tenure_shards_unowned                    that no member serves, without reserved ones
//	tenure_shards_unowned_reserved           Tenure's own, which may stay unowned
//	tenure_shards_quarantined                withheld from all members because their owners died
//	tenure_leases{state}                     of this member; core.LeaseState
//	tenure_records_damaged                   records of the store that cannot be read
//	tenure_leases_granted_total              its rate shows flapping: each has a new token
//	tenure_leases_ended_total{cause}         transitions: asked to stop, trust lapsed, ...
//	tenure_leases_settled_total{outcome}     core.LeaseOutcome
//	tenure_takeover_seconds                  from the former owner's last sign of life to the grant
//	tenure_handover_seconds{outcome}         from asking the handler to stop to the store's record
//	tenure_handler_errors_total              handlers that returned an error unasked
//	tenure_handlers_stuck_total              that did not return in time
//	tenure_writes_refused_total              by their fence
//	tenure_session_events_total{event}       core.SessionEventKind
//	tenure_peer_events_total{event}          core.PeerEventKind
//	tenure_store_call_seconds{operation,outcome}  Call.Kind; ok, refused or unknown
//	tenure_heartbeat_failures_total
//	tenure_hook_events_dropped_total         lost because hooks were too slow
//	tenure_plans_total                       that this member wrote; see Planned
//	tenure_plan_moves_total{reason}          shards moved by them; sharding.Reason
//	tenure_follower_lag_entries              sum over shards; see Follow
//	tenure_follower_lag_seconds              of the shard that is furthest behind
//	tenure_follower_applied_entries_total{applier}
//	tenure_follower_apply_seconds{applier}   of a batch
//	tenure_follower_failures_total{applier}  the stream's without a name
//	tenure_follower_restores_total{applier}  of snapshots
//	tenure_follower_resets_total             of the stream
//	tenure_fence_refused_total               writes outside the store; see Refused
//	tenure_effects{state}                    that wait: in doubt, unresolved (for a person); see Effects
//	tenure_effects_oldest_seconds{state}     since the oldest of them began
//	tenure_effects_begun_total
//	tenure_effects_ended_total{outcome}      done, failed or refused
//	tenure_effects_retries_total             attempts after an effect's first
//	tenure_effects_full_total                calls of Do refused because too many are in doubt
//
// The number of series does not depend on the number of shards, except for these, which
// Options.PerShard adds:
//
//	tenure_shard_leader{shard}               1 for each shard that this member serves
//	tenure_shard_token{shard}                newest token known of each shard
//	tenure_follower_shard_lag_entries{shard}
package tenureprom
