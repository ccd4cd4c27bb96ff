package fencing

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"net/http"
	"sync"
)

// ErrStale: a newer request was let in for one of the keys. Roll back; nothing may be done for this request any more.
var ErrStale = errors.New("fencing: a newer request was let in")

// Transaction is the part of *sql.Tx that a claim needs. A *sql.DB does not have it, because it would commit the watermarks by themselves.
type Transaction interface {
	ExecContext(ctx context.Context, statement string, arguments ...any) (sql.Result, error)
	Rollback() error
}

// WatermarkStore has the rows with the newest tokens, in the database that the handler changes.
type WatermarkStore interface {
	// Raise compares the watermark of one key and raises it, in one step. False if the stamp is stale.
	Raise(ctx context.Context, tx Transaction, key string, stamp *Stamp, compare Compare) (bool, error)
}

// Marks is the former name of WatermarkStore.
//
// Deprecated: use WatermarkStore.
type Marks = WatermarkStore

// Fence is what a handler claims with, in the transaction of its effect.
type Fence struct {
	Stamp
	watermarks WatermarkStore
	compare    Compare
	log        *log.Logger

	mutex sync.Mutex
	seen  seen
}

// seen has the results of the claims of one request.
type seen struct{ passed, stale bool }

// Claim compares and raises the watermark of every key, all or none. Call it once, as the first statement of the
// transaction that has the effect.
//
// With ErrStale the transaction is rolled back already. Any other error is that of the database. After a rollback,
// a claim in a new transaction may be tried.
func (f *Fence) Claim(ctx context.Context, tx Transaction) error {
	for _, key := range f.Keys {
		raised, err := f.watermarks.Raise(ctx, tx, key, &f.Stamp, f.compare)
		if err != nil {
			return err
		}
		if !raised {
			f.note(func(s *seen) { s.stale = true })
			// A handler that goes on finds that its transaction is over.
			_ = tx.Rollback()
			return ErrStale
		}
	}
	f.note(func(s *seen) { s.passed = true })
	return nil
}

// Transact runs the work in a transaction that begins with the claim, and commits it.
func (f *Fence) Transact(ctx context.Context, db *sql.DB, work func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // Does nothing after a commit.
	if err := f.Claim(ctx, tx); err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (f *Fence) note(what func(*seen)) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	what(&f.seen)
}

// objection is the problem that replaces an answer with this status and these fields; nil if the answer is correct.
func (f *Fence) objection(status int, fields http.Header) *problem {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	success := status < 400
	switch {
	case f.seen.passed && f.seen.stale:
		return claimedTwice // It is not known which of the two transactions was committed.
	case success && !f.seen.passed:
		return unclaimed
	case !f.seen.stale:
		return nil
	case status == http.StatusPreconditionFailed && fields.Get(refusal) == "stale":
		return nil
	default:
		return stale
	}
}
