module fencegate.example/fencing/sample

go 1.19

require (
	fencegate.example/fencing v0.0.0
	github.com/lib/pq v1.10.7
)

replace fencegate.example/fencing => ../

// Debian's golang-github-lib-pq-dev, so that nothing has to be fetched.
replace github.com/lib/pq => /usr/share/gocode/src/github.com/lib/pq
