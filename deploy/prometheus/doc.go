// Package prometheus has no code. tenure.rules.yml has recording and alert rules for the metrics of
// package tenureprom, and tenure.rules_test.yml their unit tests for promtool. grafana.json is a
// dashboard. docs/operations.md has an entry for each alert.
package prometheus
