"""A small Flask site."""

from flask import Flask, Response, jsonify, make_response, redirect, request, session, stream_with_context

app = Flask(__name__)
app.secret_key = "only for tests"


@app.get("/hello/<name>")
def hello(name):
    return f"hello {name} {request.args.get('q', '')}"


@app.post("/json")
def json():
    return jsonify(received=request.get_json(), length=request.content_length)


@app.route("/cookies")
def cookies():
    session["visits"] = session.get("visits", 0) + 1
    answer = make_response(f"{session['visits']} {request.cookies.get('plain', 'none')}")
    answer.set_cookie("plain", "yes")
    return answer


@app.post("/upload")
def upload():
    file = request.files["file"]
    content = file.read()
    return jsonify(name=file.filename, size=len(content), total=sum(content), field=request.form["field"])


@app.get("/redirect")
def redirects():
    return redirect("/hello/redirected")


@app.get("/stream")
def stream():
    return Response(stream_with_context(f"{number}\n" for number in range(1000)), mimetype="text/plain")


@app.get("/error")
def error():
    raise RuntimeError("as the test asked")


@app.get("/where")
def where():
    return request.url
