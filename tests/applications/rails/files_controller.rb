# What programs send, without a token.
class FilesController < ApplicationController
  skip_forgery_protection

  def upload
    content = params[:file].read
    render plain: [params[:file].original_filename, content.bytesize, content[0, 5], content[-5..]].join(" ")
  end

  def sum = render(json: {sum: params[:numbers].sum, name: "\u00e9t\u00e9 \u2603"})
end
