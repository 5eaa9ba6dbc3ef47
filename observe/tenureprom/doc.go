// Package tenureprom exports the metrics of an Elector, and of the packages used with it, to
// Prometheus. The package uses only Tenure's exported names, so an application can write its own
// exporter in the same way.
//
//	metrics := tenureprom.New(nil)
//	o.Hooks = core.JoinHooks(o.Hooks, metrics.Hooks())
//	elector, err := core.NewElector(backend, o)
//	metrics.Watch(elector)
//	prometheus.MustRegister(metrics)
//
// These are the metrics and their labels:
//
//	tenure_member_trusted                    1 while the session is trusted, otherwise 0
//	tenure_member_halted                     1 once the member has found that the store was replaced
//	tenure_member_leaving                    1 from the start of a planned stop
//	tenure_member_eligible                   1 while the member may own shards: core.Options.Eligible
//	tenure_member_joined                     1 while the member has a session
//	tenure_trust_remaining_seconds           time until leases end if no heartbeat succeeds
//	tenure_client_certificate_end_timestamp_seconds  end of the client certificates that this process has read
//	tenure_ttl_seconds                       TTL of this member
//	tenure_members                           living members, as this member sees them
//	tenure_members_silent                    living members without a heartbeat for their TTL
//	tenure_members_troubled                  living members in trouble: core.View.Troubled
//	tenure_shards_known                      shards seen or wanted, without reserved shards
//	tenure_shards_contended                  shards that this member contends for
//	tenure_shards_unowned                    shards that no member serves, without reserved shards
//	tenure_shards_unowned_reserved           Tenure's own shards, which may stay unowned
//	tenure_shards_quarantined                shards that no member claims because their owners died
//	tenure_leases{state}                     leases of this member; core.LeaseState
//	tenure_records_damaged                   records of the store that cannot be read
//	tenure_leases_granted_total              each grant has a new token; a high rate shows flapping
//	tenure_leases_ended_total{cause}         transitions: asked to stop, trust lapsed, ...
//	tenure_leases_settled_total{outcome}     released, transferred, lost, refused or unknown
//	tenure_takeover_seconds                  time from the former owner's last sign of life to the grant
//	tenure_handover_seconds{outcome}         time from asking the handler to stop to the store's record
//	tenure_handler_errors_total              handlers that returned an error without being asked to stop
//	tenure_handlers_stuck_total              handlers that did not return in time
//	tenure_writes_refused_total              writes refused because of their fence
//	tenure_session_events_total{event}       core.SessionJoined, ...
//	tenure_peer_events_total{event}          core.PeerJoined, ..., without "peer "
//	tenure_store_call_seconds{operation,outcome}  Call.Kind; ok, refused or unknown
//	tenure_heartbeat_failures_total
//	tenure_hook_events_dropped_total         events lost because hooks were too slow
//	tenure_plans_total                       plans that this member wrote; see Planned
//	tenure_plan_moves_total{reason}          shards that these plans moved; assign.Reason
//	tenure_follower_lag_entries              sum of all shards; see Follow
//	tenure_follower_lag_seconds              lag of the shard that is furthest behind
//	tenure_follower_applied_entries_total{applier}
//	tenure_follower_apply_seconds{applier}   time to apply a batch
//	tenure_follower_failures_total{applier}  failures; without a name, failures of the stream
//	tenure_follower_restores_total{applier}  restores of snapshots
//	tenure_follower_resets_total             resets of the stream
//	tenure_fence_refused_total               refused writes outside the store; see Refused
//	tenure_effects{state}                    waiting effects: in doubt, or unresolved (waiting for a person); see Effects
//	tenure_effects_oldest_seconds{state}     time since the oldest waiting effect began
//	tenure_effects_begun_total
//	tenure_effects_ended_total{outcome}      done, failed or refused
//	tenure_effects_retries_total             attempts after an effect's first
//	tenure_effects_full_total                calls of Do refused because too many are in doubt
//
// The number of series does not depend on the number of shards, except for the following series,
// which Options.PerShard adds:
//
//	tenure_shard_leader{shard}               1 for each shard that this member serves
//	tenure_shard_token{shard}                newest known token of each shard
//	tenure_follower_shard_lag_entries{shard}
package tenureprom
