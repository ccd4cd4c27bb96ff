// A service that refuses what comes too late to be begun, and compares nothing. Each execution is a line in a file.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"fencegate.example/fencing"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where to listen; port 0 takes a free one")
	file := flag.String("file", "", "where executions are written")
	on := flag.Bool("on", true, "whether late requests are refused")
	flag.Parse()
	var service http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lines, err := os.OpenFile(*file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			log.Fatal(err)
		}
		defer lines.Close()
		fmt.Fprintln(lines, r.URL.Path)
		work, _ := strconv.Atoi(r.URL.Query().Get("work_ms"))
		time.Sleep(time.Duration(work) * time.Millisecond)
		fmt.Fprintln(w, "done")
	})
	if *on {
		service = inTime(service)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	// The parent process reads this line to learn the port.
	fmt.Printf("{\"listening\":%q}\n", listener.Addr())
	log.Fatal(http.Serve(listener, service))
}

func inTime(service http.Handler) http.Handler {
	return fencing.NewDeadline(fencing.Unfenced("GET"))(service)
}
