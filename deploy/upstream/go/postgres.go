package fencing

import "context"

// Postgres are watermarks in PostgreSQL, in the tables of the recipe.
type Postgres struct{}

// Each changes one row, or the request is stale. A row that is new is made and compared in the same statement. Nothing
// is let in that is not above the floor, below which rows may be deleted.
var statements = map[Compare]map[Mode]string{
	ByToken: {
		Exclusive: `
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT CAST($1 AS text), CAST($2 AS text), '' FROM fence_floor WHERE CAST($2 AS text) > floor
    ON CONFLICT (resource) DO UPDATE SET write_mark = excluded.write_mark
    WHERE excluded.write_mark > fence.write_mark AND excluded.write_mark > fence.read_mark;`,
		Shared: `
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT CAST($1 AS text), '', CAST($2 AS text) FROM fence_floor WHERE CAST($2 AS text) > floor
    ON CONFLICT (resource) DO UPDATE SET read_mark = greatest(fence.read_mark, excluded.read_mark)
    WHERE excluded.read_mark > fence.write_mark;`,
	},
	ByNumber: {
		Exclusive: `
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT CAST($1 AS text), CAST($2 AS bigint), -1 FROM fence_floor WHERE CAST($2 AS bigint) > floor
    ON CONFLICT (resource) DO UPDATE SET write_mark = excluded.write_mark
    WHERE excluded.write_mark >= fence.write_mark AND excluded.write_mark >= fence.read_mark;`,
		Shared: `
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT CAST($1 AS text), -1, CAST($2 AS bigint) FROM fence_floor WHERE CAST($2 AS bigint) > floor
    ON CONFLICT (resource) DO UPDATE SET read_mark = greatest(fence.read_mark, excluded.read_mark)
    WHERE excluded.read_mark >= fence.write_mark;`,
	},
}

// Raise implements WatermarkStore.
func (Postgres) Raise(ctx context.Context, tx Transaction, key string, stamp *Stamp, compare Compare) (bool, error) {
	var mark any = string(stamp.Token)
	if compare == ByNumber {
		mark = stamp.Number
	}
	done, err := tx.ExecContext(ctx, statements[compare][stamp.Mode], key, mark)
	if err != nil {
		return false, err
	}
	rows, err := done.RowsAffected()
	return rows == 1, err
}
