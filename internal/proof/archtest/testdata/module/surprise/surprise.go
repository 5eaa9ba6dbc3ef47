package surprise // want `package surprise has no row in the import table` `surprise is on no floor`
