Rails.application.routes.draw do
  resources :notes
  root "application#home"
  get "hello/:name" => "application#hello"
  %w[visits parts file old fails].each { |name| get name => "application##{name}" }
  %w[upload sum].each { |name| post name => "files##{name}" }
end
