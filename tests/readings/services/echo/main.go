// How a service with echo reads `id`: by `Bind`, which has path, query and body; and below `/from` out of one source, or each item of a
// list. `echo PORT`.
package main

import (
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/labstack/echo/v4"
)

type account struct {
	ID string `param:"id" query:"id" form:"id" json:"id"`
}

func told(id string) string {
	if id == "" {
		return "-"
	}
	return "=" + id
}

func each(ids []string) string {
	var lines []string
	for _, id := range ids {
		lines = append(lines, told(id))
	}
	if lines == nil {
		return "-"
	}
	return strings.Join(lines, "\n")
}

func read(c echo.Context) error {
	var wanted account
	if err := c.Bind(&wanted); err != nil {
		return c.String(http.StatusOK, "!")
	}
	return c.String(http.StatusOK, told(wanted.ID))
}

func members(c echo.Context) error {
	var order struct {
		Items []account `json:"items"`
	}
	if err := c.Bind(&order); err != nil {
		return c.String(http.StatusOK, "!")
	}
	var ids []string
	for _, item := range order.Items {
		ids = append(ids, item.ID)
	}
	return c.String(http.StatusOK, each(ids))
}

func showKey(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		c.Response().Header().Set("x-key", c.Request().Header.Get("Fencing-Key"))
		return next(c)
	}
}

func main() {
	service := echo.New()
	service.HideBanner, service.HidePort = true, true
	service.Use(showKey)
	service.Any("/accounts/:id", read)
	service.Any("/accounts", read)
	service.Any("/forms", read)
	service.Any("/lists", read)
	service.POST("/from/path/:id", func(c echo.Context) error {
		// It is escaped if Go escapes the path in another way than the client. No path that the gateway forwards has an escaped
		// percent sign, so nothing is decoded twice.
		id, err := url.PathUnescape(c.Param("id"))
		if err != nil {
			return err
		}
		return c.String(http.StatusOK, told(id))
	})
	service.POST("/from/query", func(c echo.Context) error {
		return c.String(http.StatusOK, told(c.QueryParam("id")))
	})
	service.POST("/from/queries", func(c echo.Context) error {
		return c.String(http.StatusOK, each(c.QueryParams()["id"]))
	})
	service.POST("/from/field", func(c echo.Context) error {
		return c.String(http.StatusOK, told(c.Request().Header.Get("X-Id")))
	})
	service.POST("/from/member", read)
	service.POST("/from/members", members)
	service.Logger.Fatal(service.Start("127.0.0.1:" + os.Args[1]))
}
