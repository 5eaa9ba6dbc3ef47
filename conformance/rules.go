package conformance

import "github.com/tenure-go/tenure/internal/proof/suite"

type rule = suite.Rule

// These are the rules of package driver.
const (
	ruleM1 rule = "M1"
	ruleM2 rule = "M2"
	ruleM3 rule = "M3"
	ruleM4 rule = "M4"
	ruleI1 rule = "I1"
	ruleI2 rule = "I2"
	ruleA1 rule = "A1"
	ruleA2 rule = "A2"
	ruleA3 rule = "A3"
	ruleA4 rule = "A4"
	ruleA5 rule = "A5"
	ruleA6 rule = "A6"
	ruleR1 rule = "R1"
	ruleR2 rule = "R2"
	ruleR3 rule = "R3"
	ruleF1 rule = "F1"
	ruleF2 rule = "F2"
	ruleL1 rule = "L1"
	ruleL2 rule = "L2"
	ruleL3 rule = "L3"
	ruleL4 rule = "L4"
	ruleO1 rule = "O1"
	ruleO2 rule = "O2"
	ruleO3 rule = "O3"
	ruleD1 rule = "D1"
	ruleE1 rule = "E1"
	ruleE2 rule = "E2"
	ruleE3 rule = "E3"
	ruleE4 rule = "E4"
	ruleE5 rule = "E5"
	ruleX1 rule = "X1"
	ruleP1 rule = "P1"
)
