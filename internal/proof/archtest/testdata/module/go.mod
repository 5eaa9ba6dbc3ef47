module example.com/synthetic

go 1.26
