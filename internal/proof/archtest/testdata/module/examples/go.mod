module example.com/synthetic/examples

go 1.26
