// Package prometheus has no code: tenure.rules.yml are recording and alert rules for the
// metrics of package tenureprom, tenure.rules_test.yml their unit tests for promtool, and
// grafana.json is a dashboard. docs/operations.md has an entry for each alert.
package prometheus
