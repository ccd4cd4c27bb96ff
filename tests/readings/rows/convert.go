// What Go takes for one value: as convert.py.
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
)

var how = map[string]func(string) (int64, error){
	"strconv.ParseInt(id, 10, 64)": func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) },
	"strconv.ParseInt(id, 0, 64)":  func(text string) (int64, error) { return strconv.ParseInt(text, 0, 64) },
}

func text(word string) string {
	bytes, err := hex.DecodeString(word)
	if err != nil {
		panic(err)
	}
	return string(bytes)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), " ")
		value, err := how[text(words[0])](text(words[2]))
		if err != nil {
			fmt.Println("!")
		} else {
			fmt.Println("=" + hex.EncodeToString([]byte(strconv.FormatInt(value, 10))))
		}
	}
}
