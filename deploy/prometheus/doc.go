// Package prometheus has no code. tenure.rules.yml has recording and alert rules for the metrics of
// package tenureprom, and tenure.rules_test.yml has their unit tests for promtool. The file
// grafana.json is a dashboard. The page docs/operations.md has an entry for each alert.
package prometheus
