package fencing

import (
	"regexp"
	"strconv"
)

// Token orders the dispatches of one key: compared as bytes, a later one is greater.
type Token string

// Of fixed width and in lower case: two spellings of one token would order differently. The epoch is below 2^63.
var tokenForm = regexp.MustCompile(`^v1-[0-7][0-9a-f]{15}-[0-9a-f]{8}-[0-9a-f]{8}$`)

// The form is checked before a number is read: ParseInt takes `+5`.
var numberForm = regexp.MustCompile(`^(0|[1-9][0-9]{0,18})$`)

// Number is the epoch of the token: equal within a tenure.
func (t Token) Number() int64 {
	number, err := strconv.ParseInt(string(t[3:19]), 16, 64)
	if err != nil {
		panic(err) // A token is sixteen hexadecimal digits there, the first of them below 8.
	}
	return number
}

func parseToken(text string) (Token, bool) {
	return Token(text), tokenForm.MatchString(text)
}

func parseNumber(text string) (int64, bool) {
	if !numberForm.MatchString(text) {
		return 0, false
	}
	number, err := strconv.ParseInt(text, 10, 64)
	return number, err == nil
}
