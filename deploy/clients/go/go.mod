module fencegate.example/lease

go 1.19
