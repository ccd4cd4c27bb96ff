// How a service with echo reads `id`: by `Bind`, which has path, query and body. `echo PORT`.
package main

import (
	"net/http"
	"os"

	"github.com/labstack/echo/v4"
)

type account struct {
	ID string `param:"id" query:"id" form:"id" json:"id"`
}

func read(c echo.Context) error {
	var wanted account
	if err := c.Bind(&wanted); err != nil {
		return c.String(http.StatusOK, "!")
	}
	if wanted.ID == "" {
		return c.String(http.StatusOK, "-")
	}
	return c.String(http.StatusOK, "="+wanted.ID)
}

func main() {
	service := echo.New()
	service.HideBanner, service.HidePort = true, true
	service.Any("/accounts/:id", read)
	service.Any("/accounts", read)
	service.Any("/forms", read)
	service.Any("/lists", read)
	service.Logger.Fatal(service.Start("127.0.0.1:" + os.Args[1]))
}
