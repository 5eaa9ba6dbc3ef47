package route

var (
	ReadProblem  = readProblem
	CheckAddress = checkAddress
)
