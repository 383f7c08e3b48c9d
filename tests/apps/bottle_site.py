"""A small Bottle site."""

import bottle

#: Maximum bytes of JSON that Bottle accepts; its default is 100 KB.
bottle.BaseRequest.MEMFILE_MAX = 1 << 20

app = application = bottle.Bottle()


@app.get("/hello/<name>")
def hello(name):
    return f"hello {name} {bottle.request.query.q}"


@app.post("/json")
def json():
    return {"received": bottle.request.json, "length": bottle.request.content_length}


@app.get("/cookies")
def cookies():
    visits = int(bottle.request.get_cookie("visits", "0")) + 1
    plain = bottle.request.get_cookie("plain", "none")
    bottle.response.set_cookie("visits", str(visits))
    bottle.response.set_cookie("plain", "yes")
    return f"{visits} {plain}"


@app.post("/upload")
def upload():
    file = bottle.request.files["file"]
    content = file.file.read()
    return {
        "name": file.raw_filename,
        "size": len(content),
        "total": sum(content),
        "field": bottle.request.forms["field"],
    }


@app.get("/redirect")
def redirects():
    bottle.redirect("/hello/redirected")


@app.get("/stream")
def stream():
    bottle.response.content_type = "text/plain"
    for number in range(1000):
        yield f"{number}\n"


@app.get("/error")
def error():
    raise RuntimeError("as the test asked")


@app.get("/where")
def where():
    return bottle.request.url
