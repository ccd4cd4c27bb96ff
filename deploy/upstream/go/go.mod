module fencegate.example/fencing

go 1.19
