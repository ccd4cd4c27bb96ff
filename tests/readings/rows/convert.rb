# What Ruby and Rails take for one value: as convert.py.

require "active_record"

ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ":memory:")
ActiveRecord::Schema.verbose = false
ActiveRecord::Schema.define do
  create_table(:orders) { |table| table.string :sku }
end

class Order < ActiveRecord::Base
end

Order.create!(id: 42, sku: "SKU-1")

HOW = {
  "to_i" => ->(text, _) { text.to_i },
  "Integer(id)" => ->(text, _) { Integer(text) },
  "casecmp?" => ->(text, row) { row if row.casecmp?(text) },
  "Order.find(id)" => ->(text, _) { Order.find(text).id },
  "Order.find_by(id:)" => ->(text, _) { Order.find_by(id: text)&.id },
  "Order.find_by(sku:)" => ->(text, _) { Order.find_by(sku: text)&.sku },
}

$stdin.each_line(chomp: true) do |line|
  how, row, spelling = line.split(" ").map { |word| [word].pack("H*").force_encoding("UTF-8") }
  value = HOW.fetch(how).call(spelling, row)
  puts value.nil? ? "-" : "=" + value.to_s.unpack1("H*")
rescue ActiveRecord::RecordNotFound
  puts "-"
rescue ArgumentError, RangeError
  puts "!"
end
