# How a service in Rails reads `id`: by `params`, which has path, query and body; or, with `wrapped`, by the parameter that Rails
# makes of the members of a JSON body (ParamsWrapper), and by `_json`, which it makes of a JSON body that is a list.
# `ruby rails.rb PORT [wrapped]`.

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
    match "lists", to: "reading#read", via: :all
  end
end

class ReadingController < ActionController::API
  # As a new application has it.
  wrap_parameters format: [:json]

  def read
    id = ARGV[1] == "wrapped" ? wrapped_id : params[:id]
    is_text = !id.respond_to?(:each) && !id.is_a?(ActionDispatch::Http::UploadedFile)
    render plain: id.nil? ? "-" : is_text ? "=#{id}" : "*"
  end

  private

  def wrapped_id
    return id_of(params[:reading]) if params[:_json].nil?
    ids = Array(params[:_json]).map { |item| id_of(item) || item }.uniq
    ids.size == 1 ? ids.first : ids
  end

  def id_of(value)
    value[:id] if value.is_a?(ActionController::Parameters)
  end
end

Service.initialize!
Rack::Handler::WEBrick.run(
  Service, Host: "127.0.0.1", Port: ARGV[0].to_i, AccessLog: [], Logger: WEBrick::Log.new(IO::NULL),
)
