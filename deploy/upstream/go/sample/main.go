// A service that keeps accounts in PostgreSQL, and refuses requests that were overtaken.
package main

import (
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"

	"fencegate.example/fencing"
	_ "github.com/lib/pq"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where to listen; port 0 takes a free one")
	database := flag.String("database", "", "a URL of PostgreSQL")
	compared := flag.String("compare", "token", "what is compared: token or number")
	flag.Parse()
	db, err := sql.Open("postgres", *database)
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(20)
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS accounts (id text PRIMARY KEY, balance bigint NOT NULL)"); err != nil {
		log.Fatal(err)
	}
	compare, known := map[string]fencing.Compare{"token": fencing.ByToken, "number": fencing.ByNumber}[*compared]
	if !known {
		log.Fatalf("nothing is compared by %q", *compared)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	// The parent process reads this line to learn the port.
	fmt.Printf("{\"listening\":%q}\n", listener.Addr())
	log.Fatal(http.Serve(listener, service(db, compare)))
}

func service(db *sql.DB, compare fencing.Compare) http.Handler {
	accounts := accounts{db}
	// A GET without the fields is not compared. One with the fields is compared with the writes.
	fenced := fencing.New(fencing.Postgres{}, fencing.Comparing(compare), fencing.Unfenced("GET"))
	return fenced(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, verb, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/accounts/"), "/")
		switch r.Method + " " + verb {
		case "POST debit":
			accounts.move(id, -1).ServeHTTP(w, r)
		case "POST credit":
			accounts.move(id, 1).ServeHTTP(w, r)
		case "GET ":
			accounts.show(id).ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	}))
}

func tell(w http.ResponseWriter, status int, said any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(said)
}
