# How a service in Rails reads `id`: by `params`, which has path, query and body. `ruby rails.rb PORT`.

ENV["RAILS_ENV"] = "production"

require "action_controller/railtie"
require "rack/handler/webrick"

class Service < Rails::Application
  config.eager_load = false
  config.secret_key_base = "a service of a test"
  config.hosts.clear
  config.logger = Logger.new(IO::NULL)
  routes.append do
    match "accounts/:id", to: "reading#read", via: :all
    match "accounts", to: "reading#read", via: :all
    match "forms", to: "reading#read", via: :all
  end
end

class ReadingController < ActionController::API
  def read
    id = params[:id]
    is_text = !id.respond_to?(:each) && !id.is_a?(ActionDispatch::Http::UploadedFile)
    render plain: id.nil? ? "-" : is_text ? "=#{id}" : "*"
  end
end

Service.initialize!
Rack::Handler::WEBrick.run(
  Service, Host: "127.0.0.1", Port: ARGV[0].to_i, AccessLog: [], Logger: WEBrick::Log.new(IO::NULL),
)
