# Pages beside those of the notes.
class ApplicationController < ActionController::Base
  def home = render(plain: "code 0")

  def hello = render(inline: "<p>Hello, <%= params[:name] %>!</p>")

  def visits
    session[:visits] = (session[:visits] || 0) + 1
    render plain: "visit #{session[:visits]}"
  end

  def parts
    response.headers["Last-Modified"] = Time.now.httpdate # Rack::ETag would collect the body otherwise.
    self.response_body = Enumerator.new { |out| 1.upto(1000) { |number| out << "part #{number}\n" } }
  end

  def file = send_file(Rails.root.join("large.bin"), type: "application/octet-stream")

  def old = redirect_to("/hello/moved")

  def fails = raise("the route fails")
end
