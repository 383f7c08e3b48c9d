# An application of Sinatra: routes, a template, a session, an upload, JSON, a file, and a body that is streamed.
require "json"
require "rack/lint"
require "sinatra/base"

class Visits < Sinatra::Base
  enable :inline_templates
  set :environment, :production
  set :root, __dir__
  set :sessions, secret: "of this test" * 8

  get("/") { "code 0" }

  get "/hello/:name" do
    erb "<p>Hello, <%= Rack::Utils.escape_html(params[:name]) %>!</p>"
  end

  get "/visits" do
    session[:visits] = (session[:visits] || 0) + 1
    "visit #{session[:visits]}"
  end

  post "/upload" do
    file = params[:file]
    content = file[:tempfile].read
    [file[:filename], content.bytesize, content[0, 5], content[-5..]].join(" ")
  end

  post "/sum" do
    content_type :json
    JSON.generate(sum: JSON.parse(request.body.read)["numbers"].sum, name: "\u00e9t\u00e9 \u2603")
  end

  get "/parts" do
    content_type :text
    stream { |out| 1.upto(1000) { |number| out << "part #{number}\n" } }
  end

  get("/file") { send_file File.join(settings.root, "large.bin"), type: "application/octet-stream" }

  # Two requests meet here, which needs two threads.
  MEETING = Queue.new
  ANSWERS = Queue.new
  get "/meet/:side" do
    if params[:side] == "first"
      MEETING << "the first"
      ANSWERS.pop
    else
      ANSWERS << "the second"
      MEETING.pop
    end
  end

  get("/old") { redirect to("/hello/moved") }

  get("/fails") { raise "the route fails" }
end

use Rack::Lint
run Visits
