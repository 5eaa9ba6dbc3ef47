package route

var ReadProblem = readProblem
