// Package prometheus contains only tests. The file tenure.rules.yml contains recording and alert
// rules for the metrics of package tenureprom, and tenure.rules_test.yml contains unit tests of
// these rules for promtool. The file grafana.json is a dashboard. The page docs/operations.md has
// an entry for each alert.
package prometheus
