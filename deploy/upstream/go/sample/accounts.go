package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"fencegate.example/fencing"
)

type accounts struct{ db *sql.DB }

// The initial balance of an account, in cents.
const initial = 1_000_000

type order struct {
	Amount int64 `json:"amount"`
	// Another account, which receives the amount, or pays it.
	To string `json:"to"`
}

var errNotEnough = errors.New("not enough is there")

// move takes an amount from an account, or gives it with the sign 1.
func (a accounts) move(id string, sign int64) fencing.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, fence *fencing.Fence) error {
		var order order
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil || order.Amount <= 0 {
			return tell(w, http.StatusBadRequest, "an amount in cents is wanted")
		}
		// The gateway has not locked this account for the request.
		if !covers(fence, id) || order.To != "" && !covers(fence, order.To) {
			return tell(w, http.StatusForbidden, "the fence is of another account")
		}
		// A pause that makes the business logic slow, for tests.
		work, _ := strconv.Atoi(r.URL.Query().Get("work_ms"))
		var balance int64
		// The claim is the first statement of the transaction.
		err := fence.Transact(r.Context(), a.db, func(tx *sql.Tx) (err error) {
			if balance, err = read(tx, id); err != nil {
				return err
			}
			time.Sleep(time.Duration(work) * time.Millisecond)
			if balance += sign * order.Amount; balance < 0 {
				return errNotEnough
			}
			if err := write(tx, id, balance); err != nil || order.To == "" {
				return err
			}
			other, err := read(tx, order.To)
			if err != nil {
				return err
			}
			return write(tx, order.To, other-sign*order.Amount)
		})
		if errors.Is(err, errNotEnough) {
			return tell(w, http.StatusUnprocessableEntity, "not enough is there")
		}
		if err != nil {
			return err
		}
		return tell(w, http.StatusOK, map[string]int64{"balance": balance})
	}
}

func (a accounts) show(id string) fencing.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, fence *fencing.Fence) (err error) {
		var balance int64
		switch {
		case fence == nil:
			balance, err = read(a.db, id)
		case !covers(fence, id):
			return tell(w, http.StatusForbidden, "the fence is of another account")
		default:
			err = fence.Transact(r.Context(), a.db, func(tx *sql.Tx) (err error) {
				balance, err = read(tx, id)
				return err
			})
		}
		if err != nil {
			return err
		}
		return tell(w, http.StatusOK, map[string]int64{"balance": balance})
	}
}

func covers(fence *fencing.Fence, id string) bool {
	for _, key := range fence.Keys {
		if key == "account/"+id {
			return true
		}
	}
	return false
}

type reader interface {
	QueryRow(statement string, arguments ...any) *sql.Row
}

func read(from reader, id string) (balance int64, err error) {
	err = from.QueryRow("SELECT balance FROM accounts WHERE id = $1", id).Scan(&balance)
	if errors.Is(err, sql.ErrNoRows) {
		return initial, nil
	}
	return balance, err
}

func write(tx *sql.Tx, id string, balance int64) error {
	_, err := tx.Exec(`INSERT INTO accounts (id, balance) VALUES ($1, $2)
		ON CONFLICT (id) DO UPDATE SET balance = excluded.balance`, id, balance)
	return err
}
